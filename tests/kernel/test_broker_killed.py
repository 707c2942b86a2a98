"""The broker is killed while a call waits for it: the call fails, and nothing was done or hangs."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from kernel.listeners import full_listener
from kernel.people import LAUNCHER, asked, until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kernel.conftest import Start

    from democrai_osguard.approvals.service import ApprovalService

pytestmark = pytest.mark.needs("landlock", "landlock-tcp", "landlock-truncate", "seccomp")

SECONDS = 120.0
SYN_SENT = "02"
# The command dies with its supervisor; what it has started is left, and says what came of its call.
SURVIVOR = """
import errno, os, socket, sys, time
if os.fork():
    time.sleep(600)
try:
    if sys.argv[1] == "create":
        os.open(sys.argv[2], os.O_CREAT | os.O_WRONLY)
    else:
        socket.socket().connect(("127.0.0.1", int(sys.argv[2])))
    print("done", flush=True)
except OSError as error:
    print(errno.errorcode[error.errno], flush=True)
"""
MODULES = ("--read", os.path.dirname(os.__file__))  # they are no question here


def command(act: str, place: object) -> tuple[str, ...]:
    return (sys.executable, "-I", "-c", SURVIVOR, act, str(place))


def said_after_the_kill(process: subprocess.Popen[str]) -> str:
    """Kill the broker; return what the survivor of the run then says."""
    process.kill()
    return process.communicate(timeout=SECONDS)[0]


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as own:
        own.setblocking(False)
        yield own


@pytest.mark.parametrize("act", ["create", "connect"])
def test_a_call_that_waits_for_a_person_fails(
    act: str, supervised: Start, service: ApprovalService, server: socket.socket, tmp_path: Path
) -> None:
    new = tmp_path / "new"
    place: object = new if act == "create" else server.getsockname()[1]
    process = supervised(*command(act, place), options=MODULES)
    assert asked(service).rule.operation == act
    assert said_after_the_kill(process) == "ENOSYS\n"
    until(lambda: not service.list_requests())
    assert not new.exists()
    with pytest.raises(BlockingIOError):
        server.accept()


def connecting(port: int) -> int:
    """Return how many connections to the port of this machine are under way."""
    with open("/proc/net/tcp", encoding="ascii") as table:
        rows = [line.split() for line in table]
    return sum(row[2].endswith(f":{port:04X}") and row[3] == SYN_SENT for row in rows)


def test_a_connection_that_is_under_way_fails() -> None:
    with full_listener() as port:
        before = connecting(port)
        rules = ("--connect", f"127.0.0.1:{port}", *MODULES, "--")
        process = subprocess.Popen(
            [*LAUNCHER, *rules, *command("connect", port)], stdout=subprocess.PIPE, text=True
        )
        until(lambda: connecting(port) > before)
        assert said_after_the_kill(process) == "ENOSYS\n"
