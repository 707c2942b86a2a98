"""A store that is locked, read-only, newer, corrupt or incomplete: said, and as it was."""

from __future__ import annotations

import os
import shutil
import tempfile
from typing import TYPE_CHECKING

import pytest
from approvals.cases import ADA, read
from approvals.saboteurs import FileSaboteur, ServerSaboteur

from democrai_osguard.approvals import (
    ApprovalCheckFailed,
    ApprovalService,
    StoreRefused,
    open_store,
    schema,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from approvals.postgres_server import PostgresServer
    from approvals.saboteurs import Saboteur

    Act = Callable[[ApprovalService], object]


@pytest.fixture(params=["sqlite", "postgresql"])
def saboteur(request: pytest.FixtureRequest) -> Iterator[Saboteur]:
    """Return who can break a store that holds one approval and one open request."""
    folder = tempfile.mkdtemp(prefix="osguard-")  # pytest's own are closed to other users
    os.chmod(folder, 0o755)
    made: Saboteur = FileSaboteur(f"{folder}/store/s")
    if request.param == "postgresql":
        server: PostgresServer = request.getfixturevalue("postgres")
        made = ServerSaboteur(server.fresh_url())
    service = ApprovalService(open_store(made.url))
    service.approve_permanently(service.register(read("/srv/a")).id, ADA)
    service.register(read("/srv/waiting"))
    service.close()
    yield made
    shutil.rmtree(folder)


def waiting(service: ApprovalService) -> str:
    (request,) = service.list_requests()
    return request.id


# Everything that writes, on a store with one approval and one open request.
WRITES: dict[str, Act] = {
    "register": lambda service: service.register(read("/srv/b")),
    "approve": lambda service: service.approve_permanently(waiting(service), ADA),
    "deny": lambda service: service.deny(waiting(service), ADA),
    "revoke": lambda service: service.revoke(service.list_decisions()[0].id, ADA),
    "end_session": lambda service: service.end_session("sess-1"),
}
VERSION = "UPDATE approval_meta SET value = {} WHERE name = 'schema'"


def check_untouched(url: str) -> None:
    """Fail unless the store holds what it held, and works."""
    service = ApprovalService(open_store(url))
    assert [request.rule.target for request in service.list_requests()] == ["/srv/waiting"]
    assert [each.rule.target for each in service.list_decisions()] == ["/srv/a"]
    assert [entry.act for entry in service.list_history()] == ["approve"]
    assert service.check(read("/srv/a")).code == "permanent_approval"
    assert service.approve_permanently(waiting(service), ADA).applied
    service.close()


@pytest.mark.parametrize("write", WRITES)
def test_a_locked_store_fails_the_writer_and_not_the_reader(saboteur: Saboteur, write: str) -> None:
    service = ApprovalService(saboteur.hasty_store())
    with saboteur.locked():
        with pytest.raises(ApprovalCheckFailed, match="the store is locked") as caught:
            WRITES[write](service)
        assert not isinstance(caught.value, PermissionError)
        assert caught.value.code == "sandbox_external_access_check_failed"
        assert service.check(read("/srv/a")).code == "permanent_approval"
    service.close()
    check_untouched(saboteur.url)


@pytest.mark.parametrize("write", WRITES)
def test_a_read_only_store_fails_the_writer_and_not_the_reader(
    saboteur: Saboteur, write: str
) -> None:
    with saboteur.read_only():
        service = ApprovalService(open_store(saboteur.url))
        assert service.check(read("/srv/a")).code == "permanent_approval"
        with pytest.raises(ApprovalCheckFailed, match="the store is read-only"):
            WRITES[write](service)
        service.close()
    check_untouched(saboteur.url)


def test_a_newer_store_is_refused_and_left_alone(saboteur: Saboteur) -> None:
    saboteur.change(VERSION.format(99))
    with pytest.raises(StoreRefused, match=r"external_access_store_refused.*version 99"):
        open_store(saboteur.url)
    saboteur.change(VERSION.format(schema.VERSION))
    check_untouched(saboteur.url)


@pytest.mark.parametrize("value", ["-1", "0"])
def test_a_version_that_never_was_is_refused(saboteur: Saboteur, value: str) -> None:
    saboteur.change(VERSION.format(value))
    with pytest.raises(StoreRefused):
        open_store(saboteur.url)


def test_a_store_that_does_not_say_its_version_is_refused(saboteur: Saboteur) -> None:
    saboteur.change("DELETE FROM approval_meta WHERE name = 'schema'")
    with pytest.raises(StoreRefused):
        open_store(saboteur.url)


def test_an_earlier_store_is_brought_forward_and_not_back(
    saboteur: Saboteur, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = ("ALTER TABLE approval_history ADD COLUMN comment TEXT",)
    with monkeypatch.context() as patch:
        patch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, step))
        patch.setattr(schema, "VERSION", schema.VERSION + 1)
        store = open_store(saboteur.url)
        assert store.database.fetch("SELECT comment FROM approval_history") == [(None,)]
        assert ApprovalService(store).check(read("/srv/a")).code == "permanent_approval"
        store.close()
        open_store(saboteur.url).close()
    with pytest.raises(StoreRefused, match="newer program"):
        open_store(saboteur.url)


def test_a_migration_that_fails_leaves_the_store_as_it_was(
    saboteur: Saboteur, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = (
        "ALTER TABLE approval_history ADD COLUMN comment TEXT",
        "ALTER TABLE nowhere ADD COLUMN x TEXT",
    )
    with monkeypatch.context() as patch:
        patch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, steps))
        patch.setattr(schema, "VERSION", schema.VERSION + 1)
        with pytest.raises(ApprovalCheckFailed):
            open_store(saboteur.url)
    store = open_store(saboteur.url)
    with pytest.raises(ApprovalCheckFailed, match="corrupt"):
        store.database.fetch("SELECT comment FROM approval_history")
    store.close()
    check_untouched(saboteur.url)


BROKEN: dict[str, Act] = {
    "approval_standing": lambda service: service.check(read("/srv/a")),
    "approval_requests": lambda service: service.register(read("/srv/b")),
    "approval_history": lambda service: service.deny(waiting(service), ADA),
    "approval_meta": lambda service: service.verdicts().denial(read("/srv/a")),
}


@pytest.mark.parametrize("table", BROKEN)
def test_a_missing_table_closes(saboteur: Saboteur, table: str) -> None:
    service = ApprovalService(open_store(saboteur.url))
    saboteur.change(f"ALTER TABLE {table} RENAME TO elsewhere")
    with pytest.raises(ApprovalCheckFailed, match="the store is corrupt"):
        BROKEN[table](service)
    saboteur.change(f"ALTER TABLE elsewhere RENAME TO {table}")
    service.close()
    check_untouched(saboteur.url)


def test_a_row_that_makes_no_sense_closes(saboteur: Saboteur) -> None:
    saboteur.change("UPDATE approval_standing SET scope = 'forever'")
    service = ApprovalService(open_store(saboteur.url))
    for act in (lambda: service.check(read("/srv/a")), service.list_decisions):
        with pytest.raises(ApprovalCheckFailed, match="makes no sense"):
            act()
    service.close()
    saboteur.change("UPDATE approval_standing SET scope = 'permanent'")
    check_untouched(saboteur.url)
