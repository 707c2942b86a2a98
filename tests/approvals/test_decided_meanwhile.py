"""What another process decides counts inside a guard that is running, within a second."""

from __future__ import annotations

import os
import socket
import threading
import time
from typing import TYPE_CHECKING

import pytest
from approvals.cases import ADA
from guard.confined import confined

from democrai_osguard import Subject, process_guard_context, runtime
from democrai_osguard.access import AccessRequest, Operation, ResourceType, Scope
from democrai_osguard.approvals import ApprovalService, open_store, verdicts
from democrai_osguard.guard.sealed import core

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PATIENCE = 60.0
MODULE = Subject.parse("module:notes")


def _reads(path: str) -> None:
    with open(path, encoding="utf-8") as file:
        file.read()


def _stats(path: str) -> None:
    os.stat(path)


def _lists(path: str) -> None:
    os.listdir(os.path.dirname(path))


def _connects(address: str) -> None:
    host, _, port = address.rpartition(":")
    socket.create_connection((host, int(port)), 5).close()


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return a file that no rule opens."""
    monkeypatch.setenv("DEMOCRAI_TEMP_DIR", str(tmp_path / "temp"))
    (tmp_path / "file").write_text("x")
    return str(tmp_path / "file")


def outcome(act: Callable[[], object]) -> str:
    try:
        act()
    except PermissionError:
        return "refused"
    return "allowed"


def changes_to(expected: str, act: Callable[[], object]) -> bool:
    until = time.monotonic() + PATIENCE
    while outcome(act) != expected:
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True


class Elsewhere:
    """Another process, which decides what it is told to."""

    def __init__(self, url: str, request: AccessRequest) -> None:
        self._hears, self._says = os.pipe()
        self._done, done = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            try:
                os.close(self._says)
                self._decide(url, request, done)
            finally:
                os._exit(0)
        os.close(self._hears)
        os.close(done)

    def decide(self, scope: str) -> None:
        os.write(self._says, f"{scope}\n".encode())
        assert os.read(self._done, 1) == b"."

    def end(self) -> None:
        os.close(self._says)
        os.waitpid(self._pid, 0)

    def _decide(self, url: str, request: AccessRequest, done: int) -> None:
        service = ApprovalService(open_store(url))
        with os.fdopen(self._hears) as told:
            for line in told:
                if line.strip() == "revoke":
                    for each in service.list_decisions():
                        service.revoke(each.id, ADA)
                else:
                    service.record(request.identity(Scope(line.strip())), ADA)
                os.write(done, b".")


def seen_inside(url: str, request: AccessRequest, act: Callable[[], object]) -> list[object]:
    """Return whether each decision of another process came to count in one activation."""
    elsewhere = Elsewhere(url, request)
    service = ApprovalService(open_store(url))
    runtime.use_approvals(service)
    with process_guard_context("notes", "module", session_key="sess-1"):
        found: list[object] = [outcome(act)]
        for scope, expected in (
            ("permanent", "allowed"), ("revoke", "refused"), ("session", "allowed"),
            ("denied", "refused"),
        ):  # fmt: skip
            elsewhere.decide(scope)
            found.append(changes_to(expected, act))
    service.close()
    elsewhere.end()
    return found


@pytest.mark.parametrize("act", [_reads, _stats, _lists])
def test_a_decision_of_another_process_counts_for_files(
    store_url: str, file: str, act: Callable[[str], None]
) -> None:
    target = os.path.dirname(file) if act is _lists else file
    open_store(store_url).close()
    request = AccessRequest(
        MODULE, ResourceType.FILESYSTEM, Operation.READ, target, session_key="sess-1"
    )
    found = confined(lambda: seen_inside(store_url, request, lambda: act(file)))
    assert found == ["refused", True, True, True, True]


def test_a_decision_of_another_process_counts_for_connections(store_url: str) -> None:
    open_store(store_url).close()
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    accepting = threading.Thread(target=_accept, args=(listener,), daemon=True)
    accepting.start()
    port = listener.getsockname()[1]
    target = f"localhost:{port}"
    request = AccessRequest(
        MODULE, ResourceType.NETWORK, Operation.CONNECT, target, session_key="sess-1"
    )
    found = confined(
        lambda: seen_inside(store_url, request, lambda: _connects(f"127.0.0.1:{port}"))
    )
    listener.shutdown(socket.SHUT_RDWR)
    accepting.join()
    listener.close()
    assert found == ["refused", True, True, True, True]


def _accept(listener: socket.socket) -> None:
    while True:
        try:
            listener.accept()[0].close()
        except OSError:
            return


def test_both_memories_together_are_shorter_than_a_second() -> None:
    assert core.REMEMBER_SECONDS + verdicts.FRESH_SECONDS < 1.0
