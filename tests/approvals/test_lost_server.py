"""A PostgreSQL server that goes away: closed meanwhile, right again after, nothing lost."""

from __future__ import annotations

import json
import threading
import time
from typing import TYPE_CHECKING

import pytest
from approvals.cases import ADA, read
from approvals.saboteurs import ServerSaboteur

from democrai_osguard.approvals import ApprovalCheckFailed, ApprovalService, open_store
from democrai_osguard.audit import AuditLog, verify

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from approvals.postgres_server import PostgresServer

    from democrai_osguard.audit.record import Record


@pytest.fixture
def shared(postgres: PostgresServer) -> Iterator[tuple[ApprovalService, ApprovalService]]:
    """Return two services, as on two hosts, on one database."""
    url = postgres.fresh_url()
    services = ApprovalService(open_store(url)), ApprovalService(open_store(url))
    yield services
    for service in services:
        service.close()


def test_a_restart_in_the_middle_closes_and_opens_again(
    postgres: PostgresServer, shared: tuple[ApprovalService, ApprovalService]
) -> None:
    service, _ = shared
    asked = service.register(read("/srv/a"))
    service.approve_permanently(asked.id, ADA)
    waiting = service.register(read("/srv/b"))
    postgres.stop()
    try:
        for act in (
            lambda: service.check(read("/srv/a")),
            lambda: service.approve_permanently(waiting.id, ADA),
            lambda: service.verdicts().denial(read("/srv/a")),
            lambda: service.store.wait(0, 1),
        ):
            with pytest.raises(ApprovalCheckFailed, match="sandbox_external_access_check_failed"):
                act()
    finally:
        postgres.start()
    assert service.check(read("/srv/a")).code == "permanent_approval"
    assert service.get(waiting.id).state == "pending"
    assert service.approve_permanently(waiting.id, ADA).applied


def test_a_lost_connection_is_replaced(
    shared: tuple[ApprovalService, ApprovalService],
) -> None:
    service, other = shared
    service.approve_permanently(service.register(read("/srv/a")).id, ADA)
    other.store.database.fetch(  # type: ignore[attr-defined]
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE pid <> pg_backend_pid() AND application_name = 'democrai-osguard'"
    )
    assert service.check(read("/srv/a")).code == "permanent_approval"
    assert service.register(read("/srv/b")).count == 1


def test_a_connection_that_is_lost_amid_a_decision_leaves_none(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    saboteur = ServerSaboteur(postgres.fresh_url())
    audit = Loses(f"{tmp_path}/audit")
    service = ApprovalService(open_store(saboteur.url), audit=audit)
    asked = service.register(read("/srv/a"))
    audit.saboteur = saboteur
    with pytest.raises(ApprovalCheckFailed):
        service.approve_permanently(asked.id, ADA)
    audit.saboteur = None
    assert service.get(asked.id).state == "pending"
    assert (service.list_decisions(), service.list_history()) == ([], [])
    lines = (tmp_path / "audit" / "audit.jsonl").read_text().splitlines()
    assert [json.loads(line)["event"] for line in lines] == ["decision", "unconfirmed"]
    assert service.approve_permanently(asked.id, ADA).applied
    service.close()
    assert verify(audit.folder).sound


class Loses(AuditLog):
    """A log that ends every connection once a decision is written down, before it is committed."""

    saboteur: ServerSaboteur | None = None

    def record(
        self, event: str, fields: Mapping[str, object] | None = None, *, durable: bool = True
    ) -> Record:
        made = super().record(event, fields, durable=durable)
        if self.saboteur is not None and event == "decision":
            self.saboteur.lose_connections()
        return made


def test_every_host_sees_a_decision_at_once(
    shared: tuple[ApprovalService, ApprovalService],
) -> None:
    here, there = shared
    asked = here.register(read("/srv/a"))
    revision = there.store.revision()
    heard: list[float] = []

    def listen() -> None:
        there.store.wait(revision, 120)
        heard.append(time.monotonic())

    listener = threading.Thread(target=listen)
    listener.start()
    time.sleep(0.3)
    here.approve_permanently(asked.id, ADA)
    decided = time.monotonic()
    listener.join()
    assert heard[0] - decided < 60  # told, and not asked again after the timeout
    assert there.check(read("/srv/a")).code == "permanent_approval"


def test_a_watcher_learns_that_the_server_is_gone(
    postgres: PostgresServer, shared: tuple[ApprovalService, ApprovalService]
) -> None:
    service, _ = shared
    failed: list[Exception] = []

    def watch() -> None:
        try:
            for _ in service.watch(timeout=120):
                pass
        except ApprovalCheckFailed as error:
            failed.append(error)

    watcher = threading.Thread(target=watch)
    watcher.start()
    time.sleep(0.3)
    postgres.stop()
    watcher.join(60)
    postgres.start()
    assert len(failed) == 1
