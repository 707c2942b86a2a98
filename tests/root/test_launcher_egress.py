"""`democrai-launch` with network rules: the helper holds addresses, or nothing runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Final

import pytest
from command_line import osguard
from root.lab import ALLOWED, FORBIDDEN, OTHER_PORT, PORT

from democrai_osguard.approvals import ApprovalService, open_store
from democrai_osguard.enforcement.denials import DenialDesk
from democrai_osguard_helper.client import Client
from democrai_osguard_helper.protocol import Denial
from democrai_osguard_launcher import egress

if TYPE_CHECKING:
    from pathlib import Path

    from root.daemons import Daemon

pytestmark = pytest.mark.needs("bpf", "iptables", "ipset", "landlock-tcp", "seccomp")
LAUNCHER: Final = (sys.executable, "-I", "-m", "democrai_osguard_launcher")
_TRY: Final = """
import socket, sys
kind, address, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
family = socket.AF_INET6 if ":" in address else socket.AF_INET
way = socket.socket(family, {"tcp": socket.SOCK_STREAM, "udp": socket.SOCK_DGRAM}[kind])
way.settimeout(2)
way.connect((address, port))
way.send(b"hello")
print(way.recv(8).decode())
"""


def launch(
    daemon: Daemon, options: list[str], act: tuple[str, str, int]
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-I", "-c", _TRY, *map(str, act)]
    return daemon.run(*LAUNCHER, *options, "--", *command)


@pytest.mark.parametrize("family", [4, 6])
@pytest.mark.parametrize("kind", ["tcp", "udp"])
def test_the_helper_holds_address_and_port(running: Daemon, kind: str, family: int) -> None:
    free = subprocess.run(
        [sys.executable, "-I", "-c", _TRY, kind, FORBIDDEN[family], str(PORT)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert free.stdout == "ok\n"
    host = f"[{ALLOWED[family]}]" if family == 6 else ALLOWED[family]
    options = ["--connect", f"{host}:{PORT}"]
    allowed = launch(running, options, (kind, ALLOWED[family], PORT))
    assert (allowed.returncode, allowed.stdout) == (0, "ok\n"), allowed.stderr
    for place in ((FORBIDDEN[family], PORT), (ALLOWED[family], OTHER_PORT)):
        refused = launch(running, options, (kind, *place))
        assert refused.returncode == 1
        assert "ok" not in refused.stdout
        assert "Error" in refused.stderr


def test_without_the_helper_the_broker_holds_address_and_port(running: Daemon) -> None:
    options = ["--connect", f"{ALLOWED[4]}:{PORT}"]
    act = ("tcp", ALLOWED[4], PORT)
    assert launch(running, options, act).returncode == 0
    running.stop()
    allowed = launch(running, options, act)
    assert (allowed.returncode, allowed.stdout) == (0, "ok\n"), allowed.stderr
    for place in ((FORBIDDEN[4], PORT), (ALLOWED[4], OTHER_PORT)):
        refused = launch(running, options, ("tcp", *place))
        assert (refused.returncode, refused.stdout) == (1, "")
        assert "PermissionError" in refused.stderr


@pytest.mark.parametrize("name", ["None", "'0123456789ab'"])
def test_a_launcher_that_was_not_moved_refuses_to_start(running: Daemon, name: str) -> None:
    """As if the call to the helper were missing, or somebody else had been moved."""
    script = f"""
import sys
from democrai_osguard_launcher import egress, main
egress.confine = lambda *_: {name}
main.run()
"""
    rule = ["--connect", f"{ALLOWED[4]}:{PORT}"]
    done = running.run(sys.executable, "-I", "-c", script, *rule, "--", "echo", "ran")
    assert (done.returncode, done.stdout) == (125, "")
    assert "being in the sandbox that the helper made should be allowed" in done.stderr


def test_the_receipt_shows_an_address_that_is_refused_and_one_that_is_not(
    running: Daemon, tmp_path: Path
) -> None:
    receipt = tmp_path / "receipt.json"
    options = ["--connect", f"{ALLOWED[4]}:{PORT}", "--receipt", str(receipt)]
    assert launch(running, options, ("tcp", ALLOWED[4], PORT)).stdout == "ok\n"
    trials = json.loads(receipt.read_text())["tried"]
    tried = {trial["act"]: trial["outcome"] for trial in trials if trial["class"] == "network"}
    assert tried["being in the sandbox that the helper made"] == "allowed"
    assert tried["TCP to an address that no rule names"] == "EPERM"
    assert tried[f"UDP towards {ALLOWED[4]}"] == "allowed"


def test_an_address_that_is_open_and_should_not_be_refuses_to_start(running: Daemon) -> None:
    """The helper is asked for more than the rules say: the trial finds the address open."""
    script = """
from democrai_osguard_launcher import egress, main
ask = egress.confine
egress.confine = lambda places, *rest: ask([*places, ("0.0.0.0/0", None)], *rest)
main.run()
"""
    rule = ["--connect", f"{ALLOWED[4]}:{PORT}"]
    done = running.run(sys.executable, "-I", "-c", script, *rule, "--", "echo", "ran")
    assert (done.returncode, done.stdout) == (125, "")
    assert "TCP to an address that no rule names should be refused" in done.stderr


def test_one_layer_is_not_full_and_is_said(daemon: Daemon) -> None:
    daemon.layers = "bpf"
    daemon.start()
    daemon.wait()
    options = ["--connect", f"{ALLOWED[4]}:{PORT}"]
    act = ("tcp", ALLOWED[4], PORT)
    said = "the helper has no firewall layer: firewall: switched off by the operator"
    refused = launch(daemon, [*options, "--require", "full"], act)
    assert (refused.returncode, refused.stdout) == (125, "")
    assert f"enforcement would be partial, not full: {said}" in refused.stderr
    ran = launch(daemon, [*options, "--require", "partial"], act)
    assert (ran.returncode, ran.stdout) == (0, "ok\n")
    assert said in ran.stderr
    told = launch(daemon, [*options, "--explain"], act).stdout
    assert "enforcement: partial" in told
    assert f"missing: {said}" in told
    daemon.stop()
    daemon.layers = "bpf,firewall"
    daemon.start()
    daemon.wait()
    full = launch(daemon, [*options, "--require", "full"], act)
    assert (full.returncode, full.stdout, full.stderr) == (0, "ok\n", "")


def test_the_helper_itself_is_asked_for_what_is_required(daemon: Daemon) -> None:
    """As if the layer had gone after the plan was made."""
    daemon.layers = "bpf"
    daemon.start()
    daemon.wait()
    script = """
from democrai_osguard_launcher import helper_socket, main
helper_socket.missing_layers = lambda: ()
main.run()
"""
    rule = ["--connect", f"{ALLOWED[4]}:{PORT}"]
    for level, code in (("full", 125), ("partial", 0)):
        words = [sys.executable, "-I", "-c", script, *rule, "--require", level, "--", "true"]
        done = daemon.run(*words)
        assert done.returncode == code, done.stderr
        assert ("switched off by the operator" in done.stderr) is (code == 125)


def test_explain_says_what_is_exact(running: Daemon) -> None:
    options = ["--connect", f"{ALLOWED[4]}:{PORT}", "--send", "https://198.18.0.1/v1", "--explain"]
    told = launch(running, options, ("tcp", ALLOWED[4], PORT)).stdout
    assert "the helper, by address and port" in told
    assert "direction, scheme and path are the guard's" in told


def test_a_command_in_a_sandbox_cannot_start_one_of_its_own(running: Daemon) -> None:
    options = ["--connect", f"{ALLOWED[4]}:{PORT}"]
    inner = [*LAUNCHER, *options, "--", "true"]
    outer = [*LAUNCHER, *options, "--best-effort"]
    own = ("--read", os.path.dirname(egress.__file__), "--modify", running.socket)
    nested = running.run(*outer, *own, "--execute", "/usr/bin", "--", *inner)
    assert nested.returncode == 125


def test_helper_status_tells_people_what_holds(running: Daemon) -> None:
    told = osguard("helper", "status", DEMOCRAI_OS_HELPER_SOCKET=running.socket)
    assert told.returncode == 0, told.stderr
    assert f"answers at {running.socket}" in told.stdout
    assert "bpf" in told.stdout
    running.stop()
    silent = osguard("helper", "status", DEMOCRAI_OS_HELPER_SOCKET=running.socket)
    assert silent.returncode == 125
    assert "does not answer" in silent.stdout


_CONFINED: Final = """
import socket, sys
from democrai_osguard import Rule, Subject
from democrai_osguard.enforcement.egress import confine_this_process

early = socket.create_connection((sys.argv[1], int(sys.argv[2])), 2)
held = confine_this_process(
    [Rule.of("network", "send", f"https://{sys.argv[1]}:{sys.argv[2]}/v1")],
    Subject.parse("module:notes"), "s-1",
)
print(held.open_sockets, *sorted(held.layers))
for place in sys.argv[1], sys.argv[3]:
    try:
        socket.create_connection((place, int(sys.argv[2])), 2).close()
        print("connected")
    except OSError as error:
        print(type(error).__name__)
"""


def test_an_application_confines_itself_and_its_refusals_are_asked_about(
    running: Daemon, tmp_path: Path
) -> None:
    words = (ALLOWED[4], str(PORT), FORBIDDEN[4])
    done = running.run(sys.executable, "-c", _CONFINED, *words)
    assert done.returncode == 0, done.stderr
    told, allowed, forbidden = done.stdout.splitlines()
    assert told == "1 bpf firewall"
    word = "open before this process was held, and held by nothing: 1 network socket"
    assert f"{word} (connected to {ALLOWED[4]}:{PORT})" in done.stderr
    assert allowed == "connected"
    assert forbidden in {"PermissionError", "ConnectionRefusedError"}
    service = ApprovalService(open_store(f"sqlite://{tmp_path}/state/a.sqlite3"))
    with Client(running.socket) as client:
        denials = (event for event in client.events() if isinstance(event, Denial))
        DenialDesk(service).follow([next(denials)])
    (asked,) = service.list_requests()
    service.close()
    assert (str(asked.subject), asked.rule.target) == ("module:notes", f"{FORBIDDEN[4]}:{PORT}")
