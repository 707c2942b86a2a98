"""A store of an earlier version becomes today's and keeps what it holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from approvals.cases import ADA, read

from democrai_osguard.approvals import ApprovalService, StoreRefused, open_store, schema

if TYPE_CHECKING:
    from pathlib import Path

NEXT = ("ALTER TABLE approval_history ADD COLUMN comment TEXT",)


def test_an_earlier_store_is_brought_forward_and_not_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite://{tmp_path}/store/s"
    service = ApprovalService(open_store(url))
    service.approve_permanently(service.register(read("/srv/a")).id, ADA)
    service.close()
    with monkeypatch.context() as patch:
        patch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, NEXT))
        patch.setattr(schema, "VERSION", schema.VERSION + 1)
        store = open_store(url)
        assert store.database.fetch("SELECT comment FROM approval_history") == [(None,)]
        assert ApprovalService(store).check(read("/srv/a")).code == "permanent_approval"
        store.close()
        open_store(url).close()
    with pytest.raises(StoreRefused, match="newer program"):
        open_store(url)


def test_a_migration_that_fails_leaves_the_store_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite://{tmp_path}/store/s"
    open_store(url).close()
    with monkeypatch.context() as patch:
        broken = (*NEXT, "ALTER TABLE nowhere ADD COLUMN x TEXT")
        patch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, broken))
        patch.setattr(schema, "VERSION", schema.VERSION + 1)
        with pytest.raises(RuntimeError):
            open_store(url)
    store = open_store(url)
    columns = store.database.fetch("SELECT name FROM pragma_table_info('approval_history')")
    assert ("comment",) not in columns
    store.close()
