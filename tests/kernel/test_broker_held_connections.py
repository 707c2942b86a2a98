"""Supervised runs: a connection that no rule allows waits for a person."""

from __future__ import annotations

import os
import socket
import sys
from typing import TYPE_CHECKING

import pytest
from kernel.people import DEADLINE, OPERATOR, asked, until

from democrai_osguard.access import ResourceType

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from kernel.conftest import Start

    from democrai_osguard.approvals.service import ApprovalService

    Connect = Callable[..., subprocess.Popen[str]]

pytestmark = pytest.mark.needs("landlock", "landlock-truncate", "seccomp")

ACT = """
import socket, sys
def said(act):
    try:
        act()
    except OSError as error:
        return type(error).__name__
    return "done"
def tcp(at):
    socket.socket().connect(("127.0.0.1", int(at)))
def udp(at):
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"hello", ("127.0.0.1", int(at)))
def unix(at):
    socket.socket(socket.AF_UNIX).connect(at)
print("ready", flush=True)
for word in sys.argv[2:]:
    print(said(lambda: globals()[sys.argv[1]](word)), flush=True)
"""


@pytest.fixture
def start(supervised: Start) -> Connect:
    """Return a function that starts a supervised command which connects."""

    def run(kind: str, *places: object, options: tuple[str, ...] = ()) -> subprocess.Popen[str]:
        command = [sys.executable, "-I", "-c", ACT, kind, *map(str, places)]
        # Its own modules are no question here.
        return supervised(*command, options=("--read", os.path.dirname(os.__file__), *options))

    return run


@pytest.fixture
def port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def words_of(process: subprocess.Popen[str]) -> list[str]:
    out, errors = process.communicate(timeout=DEADLINE)
    assert out, errors
    return out.split()


def test_a_person_is_asked_and_the_connection_is_made(
    start: Connect, service: ApprovalService, port: int
) -> None:
    process = start("tcp", port, port)
    assert process.stdout is not None
    lines = [process.stdout.readline().strip()]
    for _ in range(2):  # what is approved once is asked again
        request = asked(service)
        assert request.rule.resource_type is ResourceType.NETWORK
        assert (request.rule.operation, request.rule.target) == ("connect", f"localhost:{port}")
        service.approve_once(request.id, OPERATOR)
        lines += [process.stdout.readline().strip()]
    assert lines == ["ready", "done", "done"]


def test_what_is_approved_for_the_session_is_not_asked_again(
    start: Connect, service: ApprovalService, port: int
) -> None:
    process = start("tcp", port, port, port)
    service.approve_for_session(asked(service).id, OPERATOR)
    assert words_of(process) == ["ready", "done", "done", "done"]
    assert service.list_requests() == []


@pytest.mark.parametrize("kind", ["tcp", "udp"])
def test_what_is_denied_fails(
    kind: str, start: Connect, service: ApprovalService, port: int
) -> None:
    process = start(kind, port, port)
    service.deny(asked(service).id, OPERATOR)
    assert words_of(process) == ["ready", "PermissionError", "PermissionError"]


def test_a_datagram_waits_too(start: Connect, service: ApprovalService) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        server.settimeout(DEADLINE)
        process = start("udp", server.getsockname()[1])
        service.approve_once(asked(service).id, OPERATOR)
        assert server.recv(10) == b"hello"
        assert words_of(process) == ["ready", "done"]


def test_a_unix_socket_is_asked_about_by_its_path(
    start: Connect, service: ApprovalService, tmp_path: Path
) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
        server.listen()
        process = start("unix", tmp_path / "socket")
        request = asked(service)
        assert request.rule.resource_type is ResourceType.FILESYSTEM
        assert (request.rule.operation, request.rule.target) == (
            "modify", str(tmp_path / "socket")
        )  # fmt: skip
        service.approve_once(request.id, OPERATOR)
        assert words_of(process) == ["ready", "done"]


def test_what_a_rule_allows_is_not_asked(
    start: Connect, service: ApprovalService, port: int
) -> None:
    process = start("tcp", port, options=("--connect", f"127.0.0.1:{port}"))
    assert words_of(process) == ["ready", "done"]
    assert service.list_requests() == []


def test_who_is_killed_takes_the_question_along(
    start: Connect, service: ApprovalService, port: int
) -> None:
    process = start("tcp", port)
    asked(service)
    process.kill()
    until(lambda: not service.list_requests())
