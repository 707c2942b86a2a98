"""Nobody has to start it: `serve`, and an application with approvals, follow what is decided.

Refused, asked, approved by the command line of another process, connected; revoked, cut.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from command_line import osguard
from root.attempts import tcp
from root.daemons import eventually
from root.lab import ALLOWED, FORBIDDEN, PORT
from root.talkers import PATIENCE, REFUSED, TALK, Talker

if TYPE_CHECKING:
    from collections.abc import Iterator

    from root.daemons import Daemon

pytestmark = pytest.mark.needs("bpf", "iptables", "ipset", "landlock-tcp", "seccomp")
PLACE: Final = f"{FORBIDDEN[4]}:{PORT}"
# An application: the child that it starts talks on its own standard streams.
_APPLICATION: Final = """
import asyncio, sys
from democrai_osguard import Rule, runtime, sdk
from democrai_osguard.approvals.opening import open_service

async def main(python, talk, place):
    access = [
        {"resource_type": "network", "operation": "connect", "target": place},
        {"resource_type": "filesystem", "operation": "execute", "target": python},
    ]
    with runtime.module_context("notes", {"access": access}, session_key="s-1"):
        child = await sdk.tasks.run_subprocess(python, "-I", "-c", talk)
    await child.wait()

runtime.use_approvals(open_service())
asyncio.run(main(*sys.argv[1:]))
"""


@pytest.fixture
def environment(daemon: Daemon, tmp_path: Path) -> dict[str, str]:
    daemon.start()
    daemon.wait()
    # A folder for temporary files beside the store: else all that lies in /tmp becomes a rule.
    state = {
        "DEMOCRAI_STATE_DIR": str(tmp_path / "state"),
        "DEMOCRAI_TEMP_DIR": str(tmp_path / "temp"),
    }
    return {**os.environ, **state, "DEMOCRAI_OS_HELPER_SOCKET": daemon.socket}


@contextlib.contextmanager
def _serving(environment: dict[str, str]) -> Iterator[None]:
    words = [sys.executable, "-I", "-m", "democrai_osguard.cli.main", "serve"]
    with subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL) as page:
        try:
            yield
        finally:
            page.terminate()


def _launched(environment: dict[str, str]) -> Talker:
    words = [sys.executable, "-I", "-m", "democrai_osguard_launcher", "--subject", "module:notes"]
    rules = ["--connect", f"{ALLOWED[4]}:{PORT}"]
    command = [sys.executable, "-I", "-c", TALK]
    return Talker([*words, *rules, "--", *command], {**environment, "DEMOCRAI_SESSION_KEY": "s-1"})


@pytest.fixture
def served(environment: dict[str, str]) -> Iterator[Talker]:
    """Return a command of the launcher, while the approval page is served."""
    with _serving(environment):
        talker = _launched(environment)
        yield talker
        talker.close()


@pytest.fixture
def started(environment: dict[str, str]) -> Iterator[Talker]:
    """Return a child of an application that has approvals, and does nothing else about them."""
    python = os.path.realpath(sys.executable)
    words = [sys.executable, "-c", _APPLICATION, python, TALK, f"{ALLOWED[4]}:{PORT}"]
    talker = Talker(words, environment)
    yield talker
    talker.close()


def _followed(environment: dict[str, str]) -> bool:
    told = osguard("helper", "status", "--json", **environment)
    return bool(json.loads(told.stdout)["followed"])


def _asked(environment: dict[str, str]) -> dict[str, str]:
    listed = json.loads(osguard("requests", "list", "--json", **environment).stdout)
    return {each["resource"]["target"]: each["id"] for each in listed}


@pytest.mark.parametrize("way", ["served", "started"])
def test_a_decision_of_another_process_reaches_what_runs(
    request: pytest.FixtureRequest, environment: dict[str, str], way: str
) -> None:
    assert not _followed(environment)
    talker: Talker = request.getfixturevalue(way)
    assert tcp(FORBIDDEN[4]) == b"ok"
    assert talker.does("hold", ALLOWED[4], PORT) == "ok"
    assert eventually(lambda: _followed(environment), PATIENCE)
    assert talker.does("hold", FORBIDDEN[4], PORT) in REFUSED
    assert eventually(lambda: PLACE in _asked(environment), PATIENCE)
    number = _asked(environment)[PLACE]
    done = osguard("requests", "approve", number, "--scope", "session", **environment)
    assert done.returncode == 0, done.stderr
    assert eventually(lambda: talker.does("hold", FORBIDDEN[4], PORT) == "ok", PATIENCE)
    talker.begin("wait", FORBIDDEN[4], PORT)
    (standing,) = json.loads(osguard("approvals", "list", "--json", **environment).stdout)
    assert osguard("approvals", "revoke", str(standing["id"]), **environment).returncode == 0
    assert talker.result() == "ConnectionAbortedError"
    assert talker.does("hold", FORBIDDEN[4], PORT) in REFUSED
    assert talker.does("hold", ALLOWED[4], PORT) == "ok"


def test_a_follower_that_is_killed_comes_back(environment: dict[str, str], started: Talker) -> None:
    assert started.does("hold", FORBIDDEN[4], PORT) in REFUSED
    assert eventually(lambda: PLACE in _asked(environment), PATIENCE)
    (follower,) = _followers(started.pid)
    os.kill(follower, signal.SIGKILL)
    number = _asked(environment)[PLACE]
    done = osguard("requests", "approve", number, "--scope", "session", **environment)
    assert done.returncode == 0, done.stderr
    assert eventually(lambda: started.does("hold", FORBIDDEN[4], PORT) == "ok", PATIENCE)


def _followers(application: int) -> list[int]:
    """Return the processes that follow for an application: the children of one that watches."""
    beside = [pid for pid in _children(application) if b".companion" in _words(pid)]
    return [pid for watcher in beside for pid in _children(watcher)]


def _children(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _words(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def test_switched_off_nobody_follows(environment: dict[str, str]) -> None:
    """The control: without a follower a decision stays where it was made."""
    talker = _launched(environment)
    off = {**environment, "DEMOCRAI_SANDBOX_OS_ENABLED": "false"}
    with _serving(off):
        assert talker.does("hold", FORBIDDEN[4], PORT) in REFUSED
        assert not eventually(lambda: PLACE in _asked(environment), 2.0)
        assert not _followed(environment)
        told = osguard("status", **environment).stdout
        assert "decisions reach running sandboxes once an application or `serve` runs" in told
    talker.close()
