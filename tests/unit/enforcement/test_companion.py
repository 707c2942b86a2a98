"""The process beside an application: there while it is needed, and never left behind."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Final

import pytest

from democrai_osguard.enforcement import companion

if TYPE_CHECKING:
    from pathlib import Path

PATIENCE: Final = 60.0
_APPLICATION: Final = """
import os, sys
from democrai_osguard import runtime
from democrai_osguard.approvals.opening import open_service
from democrai_osguard.enforcement import companion

def beside():
    return [each._process.pid for each in companion._running.values() if each.is_running()]

service = open_service()
runtime.use_approvals(service)
first = beside()
runtime.use_approvals(service)
assert beside() == first, "one is enough"
if os.fork() == 0:
    assert not beside(), "a fork has none of its own"
    sys.exit()  # and ends nobody else's
assert os.wait()[1] == 0
assert beside() == first
print(*first, flush=True)
if sys.stdin.readline() == "let go\\n":
    runtime.use_approvals(None)
    print(*beside(), flush=True)
    sys.stdin.readline()
"""


def _application(folder: Path, **settings: str) -> subprocess.Popen[str]:
    state = {"DEMOCRAI_STATE_DIR": str(folder / "state")}
    where = {"DEMOCRAI_OS_HELPER_SOCKET": str(folder / "helper.sock")}
    return subprocess.Popen(
        [sys.executable, "-c", _APPLICATION], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, env={**os.environ, **state, **where, **settings},
    )  # fmt: skip


def _said(application: subprocess.Popen[str]) -> list[int]:
    assert application.stdout is not None
    return [int(word) for word in application.stdout.readline().split()]


def _is_gone(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return b"companion" not in file.read()
    except OSError:
        return True


def _goes(pid: int) -> bool:
    until = time.monotonic() + PATIENCE
    while not _is_gone(pid) and time.monotonic() < until:
        time.sleep(0.02)
    return _is_gone(pid)


@pytest.fixture
def listening(tmp_path: Path) -> Path:
    """Return a folder with a socket at the helper's place."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "helper.sock"))
    return tmp_path


@pytest.mark.parametrize("end", ["let go", "end", "kill"])
def test_it_ends_with_its_application_however_that_ends(listening: Path, end: str) -> None:
    with _application(listening) as application:
        (pid,) = _said(application)
        assert not _is_gone(pid)
        assert application.stdin is not None
        if end == "kill":
            application.kill()
        else:
            application.stdin.write(f"{end}\n")
            application.stdin.flush()
        if end == "let go":
            assert _said(application) == []
            assert application.poll() is None
        assert _goes(pid)


def _children(pid: int) -> list[int]:
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
        return [int(word) for word in file.read().split()]


def _pair(pid: int) -> tuple[int, int]:
    """Return the process that watches and the one that follows, once both are there."""
    until = time.monotonic() + PATIENCE
    while not (found := _children(pid)):
        assert time.monotonic() < until, "nobody follows"
        time.sleep(0.02)
    return pid, found[0]


def _another_follows(pid: int, gone: int) -> int:
    until = time.monotonic() + PATIENCE
    while not (found := [each for each in _children(pid) if each != gone]):
        assert time.monotonic() < until, "nobody follows"
        time.sleep(0.02)
    return found[0]


def test_one_that_is_killed_is_started_again_and_that_is_said_once(listening: Path) -> None:
    with _application(listening) as application:
        watcher, follower = _pair(*_said(application))
        for _ in range(3):
            os.kill(follower, signal.SIGKILL)
            follower = _another_follows(watcher, follower)
        _, errors = application.communicate("end\n", timeout=PATIENCE)
        assert errors.count("is started again") == 1
        assert _goes(watcher)
        assert _goes(follower)


def test_whoever_watches_may_be_killed_as_well(listening: Path) -> None:
    with _application(listening) as application:
        watcher, follower = _pair(*_said(application))
        os.kill(watcher, signal.SIGKILL)
        _, another = _pair(follower)  # the one that followed watches now
        assert not _is_gone(follower)
        _, errors = application.communicate("end\n", timeout=PATIENCE)
        assert errors.count("is started again") == 1
        assert _goes(follower)
        assert _goes(another)


def test_it_is_not_started_again_and_again_without_rest() -> None:
    rests = [companion.rest_after(failures) for failures in range(100)]
    assert rests[:2] == [0, 0]
    assert rests[2:] == sorted(rests[2:])
    assert (rests[2], rests[-1]) == (1, companion.MOST_SECONDS)


def test_where_no_helper_listens_or_nobody_wants_it_there_is_none(
    tmp_path: Path, listening: Path
) -> None:
    off = {"DEMOCRAI_SANDBOX_OS_ENABLED": "false"}
    with _application(listening, **off) as application:
        assert _said(application) == []
        application.communicate("end\n")
    (tmp_path / "helper.sock").unlink()
    with _application(tmp_path) as application:
        assert _said(application) == []
        application.communicate("end\n")
