"""A file system without room: said with a code, everything as it was, right again after."""

from __future__ import annotations

import os
import shutil
import tempfile
from typing import TYPE_CHECKING

import pytest
from approvals.cases import ADA, read
from approvals.postgres_server import PostgresServer, offered
from approvals.small_disk import on_a_small_disk

from democrai_osguard.approvals import ApprovalCheckFailed, ApprovalService, open_store
from democrai_osguard.audit import AuditLog, verify
from democrai_osguard.audit.log import AuditFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from approvals.small_disk import SmallDisk

pytestmark = pytest.mark.needs("root")
MOST = 900  # writes that a full disk may still take, in space that was there already
SIZES = {"sqlite": "1m", "postgresql": "32m"}


@pytest.fixture(params=["sqlite", "postgresql"])
def kind(request: pytest.FixtureRequest) -> str:
    """Return a kind of store that this host has."""
    kind: str = request.param
    if kind == "postgresql" and not offered():
        request.getfixturevalue("postgres")  # which skips, or fails where it must run
    return kind


@pytest.fixture
def place() -> Iterator[str]:
    """Return an empty folder that a server of another user can reach."""
    folder = tempfile.mkdtemp(prefix="osguard-disk-")
    os.chmod(folder, 0o755)
    yield folder
    os.rmdir(folder)


class Store:
    """A store of a kind on a small disk."""

    def __init__(self, kind: str, disk: SmallDisk) -> None:
        self._server = PostgresServer() if kind == "postgresql" else None
        self.url = f"sqlite://{disk.folder}/store/s"
        if self._server is not None:
            self.url = self._server.fresh_url_in(disk.folder)

    def remove(self) -> None:
        if self._server is not None:
            self._server.remove()


def asked_until_full(service: ApprovalService, start: int) -> tuple[list[str], str]:
    """Register until there is no room; return what was acknowledged, and the error."""
    done: list[str] = []
    for number in range(start, start + MOST):
        target = f"/srv/{number}/{'x' * 2000}"
        try:
            service.register(read(target))
        except ApprovalCheckFailed as error:
            return done, str(error)
        done.append(target)
    raise AssertionError("the disk never became full")


def held(service: ApprovalService) -> list[list[str]]:
    """Return what a store holds: open requests, and what stands."""
    waiting = sorted(request.rule.target for request in service.list_requests())
    return [waiting, [each.rule.target for each in service.list_decisions()]]


def test_a_full_disk_fails_the_writer_and_nothing_is_lost(kind: str, place: str) -> None:
    def act(disk: SmallDisk) -> object:
        store = Store(kind, disk)
        service = ApprovalService(open_store(store.url))
        service.approve_permanently(service.register(read("/srv/a")).id, ADA)
        disk.fill()
        done, words = asked_until_full(service, 0)
        more, words_again = asked_until_full(service, MOST)
        full = held(service)
        decision = service.check(read("/srv/a")).code
        service.close()
        disk.free()
        again = ApprovalService(open_store(store.url))
        freed = held(again)
        after = again.approve_permanently(again.register(read("/srv/after")).id, ADA).applied
        again.close()
        store.remove()
        expected = [sorted(done + more), ["/srv/a"]]
        return [words, words_again, full == expected, decision, freed == expected, after]

    full = "sandbox_external_access_check_failed: the disk of the store is full"
    assert on_a_small_disk(place, SIZES[kind], act) == [
        full, full, True, "permanent_approval", True, True,
    ]  # fmt: skip


def test_a_log_without_room_fails_and_goes_on_after(place: str) -> None:
    def act(disk: SmallDisk) -> object:
        log = AuditLog(f"{disk.folder}/audit")
        log.record("decision")
        disk.fill()
        written, words = until_full(lambda: log.record("decision", {"target": "x" * 300}))
        meanwhile = verify(log.folder)
        disk.free()
        log.record("decision")
        after = verify(log.folder)
        return {
            "words": words,
            "meanwhile": [meanwhile.sound, meanwhile.records - written],
            "after": [after.sound, after.records - written],
        }

    assert on_a_small_disk(place, "256k", act) == {
        "words": "audit_log_failed: [Errno 28] No space left on device",
        "meanwhile": [True, 1],
        "after": [True, 2],
    }


def until_full(act: Callable[[], object]) -> tuple[int, str]:
    """Act until the log has no room; return how often it had, and the error."""
    for number in range(MOST):
        try:
            act()
        except AuditFailed as error:
            return number, str(error)
    raise AssertionError("the disk never became full")


def test_no_decision_is_made_that_the_log_has_no_room_for(place: str, tmp_path: Path) -> None:
    def act(disk: SmallDisk) -> object:
        log = AuditLog(f"{disk.folder}/audit")
        service = ApprovalService(open_store(f"sqlite://{tmp_path}/store/s"), audit=log)
        asked = [service.register(read(f"/srv/{number}", None)).id for number in range(200)]
        service.approve_permanently(asked[0], ADA)
        disk.fill()
        todo = iter(asked[1:])
        made, words = until_full(lambda: service.approve_permanently(next(todo), ADA))
        refused = service.check(read("/srv/refused")).code
        left = asked[made + 1]
        standing, waiting = len(service.list_decisions()), service.get(left).state
        disk.free()
        after = service.approve_permanently(left, ADA).applied
        service.close()
        sound = verify(log.folder).sound
        return [words.partition(":")[0], standing - made, waiting, refused, after, sound]

    assert on_a_small_disk(place, "256k", act) == [
        "audit_log_failed", 1, "pending", "not_enabled", True, True,
    ]  # fmt: skip


def test_the_control_has_room(place: str) -> None:
    def act(disk: SmallDisk) -> object:
        disk.fill()
        disk.free()
        log = AuditLog(f"{disk.folder}/audit")
        log.record("decision")
        return [verify(log.folder).records, shutil.disk_usage(disk.folder).total]

    assert on_a_small_disk(place, "256k", act) == [1, 256 * 1024]
    assert os.listdir(place) == []  # nobody else saw it
