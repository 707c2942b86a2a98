"""`runtime.confine_application`: the application itself is held, as `sandbox.os.…` says."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

import pytest
from root.lab import ALLOWED, FORBIDDEN, PORT

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

    from root.daemons import Daemon

pytestmark = pytest.mark.needs("bpf", "iptables", "ipset", "landlock-tcp", "seccomp")
_TRY: Final = """
import socket, sys
try:
    with socket.create_connection((sys.argv[1], int(sys.argv[2])), 20) as way:
        way.send(b"hello")
        print(way.recv(8).decode(), flush=True)
except OSError as error:
    print(type(error).__name__, flush=True)
"""
_APPLICATION: Final = """
import asyncio, os, socket, sys
from democrai_osguard import Rule, runtime, sdk
from democrai_osguard.approvals.opening import open_service

allowed, forbidden, port, before, attempt = sys.argv[1:]
kept = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(int(before))]
kept += socket.socketpair()  # of this host: no word about these
service = open_service()
runtime.use_approvals(service)
rules = [Rule.of("network", "connect", f"{allowed}:{port}")]
held = runtime.confine_application(rules, service)
print("free" if held is None else f"held {held.open_sockets}", flush=True)

def knock(place):
    try:
        socket.create_connection((place, int(port)), 20).close()
        return "ok"
    except OSError as error:
        return type(error).__name__

print(knock(allowed), knock(forbidden), flush=True)

async def child():
    python = os.path.realpath(sys.executable)
    access = [
        {"resource_type": "network", "operation": "connect", "target": f"{forbidden}:{port}"},
        {"resource_type": "filesystem", "operation": "execute", "target": python},
    ]
    with runtime.module_context("notes", {"access": access}):
        for place in (forbidden, allowed):
            words = python, "-I", "-c", attempt, place, port
            await (await sdk.tasks.run_subprocess(*words)).wait()

asyncio.run(child())
"""
_LEFT_OPEN: Final = "open before this process was held, and held by nothing"


def _run(
    daemon: Daemon, folder: Path, *, before: int = 0, **settings: str
) -> subprocess.CompletedProcess[str]:
    places = (ALLOWED[4], FORBIDDEN[4], str(PORT), str(before), _TRY)
    chosen = {f"DEMOCRAI_SANDBOX_OS_{name.upper()}": value for name, value in settings.items()}
    # A folder for temporary files beside the store: else all that lies in /tmp becomes a rule.
    own = {"DEMOCRAI_STATE_DIR": str(folder / "app"), "DEMOCRAI_TEMP_DIR": str(folder / "temp")}
    return daemon.run(sys.executable, "-c", _APPLICATION, *places, **own, **chosen)


def test_it_reaches_its_own_places_and_its_children_theirs(running: Daemon, tmp_path: Path) -> None:
    done = _run(running, tmp_path)
    assert done.returncode == 0, done.stderr
    first, own, *children = done.stdout.splitlines()
    assert first == "held 0"
    assert own == "ok PermissionError"
    # Its children live in sandboxes of their own, by the rules of their module.
    assert children == ["ok", "PermissionError"]
    assert _LEFT_OPEN not in done.stderr


def test_switched_off_it_is_free(running: Daemon, tmp_path: Path) -> None:
    """The control: with nothing that holds it, the same application reaches both places."""
    done = _run(running, tmp_path, enabled="false")
    assert done.stdout.splitlines()[:2] == ["free", "ok ok"], done.stderr


def test_sockets_from_before_are_named_and_refused_where_everything_is_required(
    running: Daemon, tmp_path: Path
) -> None:
    told = _run(running, tmp_path, before=2)
    assert told.stdout.splitlines()[:2] == ["held 2", "ok PermissionError"], told.stderr
    assert f"{_LEFT_OPEN}: 2 network sockets" in told.stderr
    refused = _run(running, tmp_path, before=2, require="full")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert f"egress_not_enforced: {_LEFT_OPEN}: 2 network sockets" in refused.stderr
    strict = _run(running, tmp_path, require="full")
    assert strict.stdout.splitlines()[0] == "held 0", strict.stderr


@pytest.mark.parametrize("require", ["none", "partial", "full"])
def test_without_a_helper_it_runs_only_where_nothing_is_required(
    running: Daemon, tmp_path: Path, require: str
) -> None:
    running.stop()
    done = _run(running, tmp_path, require=require)
    if require == "none":
        assert done.stdout.splitlines()[:2] == ["free", "ok ok"], done.stderr
        assert "this process is not held to its network rules: egress_not_enforced:" in done.stderr
    else:
        assert (done.returncode, done.stdout) == (1, "")
        assert "NotConfined: egress_not_enforced:" in done.stderr


def test_one_layer_is_enough_unless_everything_is_required(daemon: Daemon, tmp_path: Path) -> None:
    daemon.layers = "bpf"
    daemon.start()
    daemon.wait()
    partly = _run(daemon, tmp_path, require="partial")
    assert partly.stdout.splitlines()[:2] == ["held 0", "ok PermissionError"], partly.stderr
    fully = _run(daemon, tmp_path, require="full")
    assert (fully.returncode, fully.stdout) == (1, "")
    assert "not_enforceable: firewall: switched off" in fully.stderr
