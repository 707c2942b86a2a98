"""Both stores for every test that asks for one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from approvals.postgres_server import PostgresServer, offered
from host_features import PROBES, require

from democrai_osguard.approvals import ApprovalService, open_store
from democrai_osguard.approvals.keys import KeyFile
from democrai_osguard.approvals.vault import Vault
from democrai_osguard.audit import AuditLog

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PROBES["postgresql"] = offered


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """Return a running server."""
    require("postgresql")
    server = PostgresServer()
    yield server
    server.remove()


@pytest.fixture(params=["sqlite", "postgresql"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the URL of an empty store, of each kind in turn."""
    if request.param == "sqlite":
        return f"sqlite://{tmp_path}/store/approvals.sqlite3"
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.fresh_url()


@pytest.fixture
def service(store_url: str, tmp_path: Path) -> Iterator[ApprovalService]:
    """Return a service with a vault and an audit log."""
    made = ApprovalService(
        open_store(store_url),
        vault=Vault(KeyFile(f"{tmp_path}/keys/resume.keys")),
        audit=AuditLog(f"{tmp_path}/audit"),
    )
    yield made
    made.close()
