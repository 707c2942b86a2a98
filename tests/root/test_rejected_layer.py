"""A layer that fails its trial is tried again; one that stays out leaves nothing that refuses."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Final

import pytest
from root.daemons import HELPER, Resident, eventually, resident
from root.lab import ALLOWED, FORBIDDEN, OTHER_PORT, PORT

from democrai_osguard_helper.bpf_layer import BpfLayer
from democrai_osguard_helper.cgroups import Tree, find_mount
from democrai_osguard_helper.client import Client
from democrai_osguard_helper.endpoints import Endpoint, parse_network
from democrai_osguard_helper.protocol import Notice, Update

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from root.daemons import Daemon

pytestmark = pytest.mark.needs("bpf", "iptables", "ipset")
ONE: Final = (Endpoint(parse_network(ALLOWED[4]), PORT),)
TWO: Final = (*ONE, Endpoint(parse_network(FORBIDDEN[4]), PORT))
# As the program, but it fails while a count of failures is left.
_FAULTY: Final = """#!/bin/sh
left=$(cat {count})
if [ "$left" -gt 0 ] && [ "$1" = {verb} ]; then
    echo $((left - 1)) > {count}
    echo "{program}: spoilt by the test" >&2
    exit 1
fi
exec {real} {applet} "$@"
"""


def _spoil(daemon: Daemon, folder: Path, program: str, verb: str, times: int) -> None:
    """Let a program of the daemon fail so often; nobody else sees that."""
    real = os.path.realpath(f"/usr/sbin/{program}")
    copy, count, wrong = folder / os.path.basename(real), folder / "count", folder / "wrong"
    applet = "${0##*/}" if copy.name != program else ""  # one program of many names
    shutil.copy(real, copy)
    count.write_text(str(times), encoding="ascii")
    places = {"count": count, "verb": verb, "program": program, "real": copy, "applet": applet}
    wrong.write_text(_FAULTY.format(**places), encoding="ascii")
    wrong.chmod(0o755)
    script = f'mount --bind {wrong} {real}; exec "$@"'
    daemon.prefix = ("unshare", "-m", "sh", "-c", script, "sh")


def _reasons(daemon: Daemon) -> dict[str, str]:
    with Client(daemon.socket) as client:
        return {state.layer: state.reason for state in client.status().layers}


def _ours(daemon: Daemon) -> str:
    saved = subprocess.run(["iptables-save"], capture_output=True, text=True, check=True).stdout
    sets = subprocess.run(["ipset", "list", "-n"], capture_output=True, text=True, check=True)
    return "\n".join(line for line in (saved + sets.stdout).splitlines() if daemon.instance in line)


def _holds(daemon: Daemon) -> None:
    with resident(daemon.socket, ONE) as child:
        assert child.does("tcp", ALLOWED[4], PORT) == "allowed"
        assert child.does("tcp", FORBIDDEN[4], PORT) == "Operation not permitted"


def test_one_failure_of_a_program_does_not_cost_the_layer(daemon: Daemon, tmp_path: Path) -> None:
    _spoil(daemon, tmp_path, "ipset", "restore", 2)
    daemon.start()
    daemon.wait()
    assert _reasons(daemon) == {"bpf": "", "firewall": ""}
    _holds(daemon)


def test_a_layer_that_is_given_up_refuses_nothing(daemon: Daemon, tmp_path: Path) -> None:
    _spoil(daemon, tmp_path, "ipset", "restore", 1000)
    daemon.start()
    daemon.wait()
    assert _reasons(daemon) == {"bpf": "", "firewall": "ipset: ipset: spoilt by the test"}
    _holds(daemon)
    assert _ours(daemon) == ""


def test_a_layer_that_works_later_joins_and_holds_what_runs(daemon: Daemon, tmp_path: Path) -> None:
    _spoil(daemon, tmp_path, "ipset", "restore", 1000)
    daemon.start()
    daemon.wait()
    with resident(daemon.socket, ONE) as child, Client(daemon.socket) as client:
        assert daemon.instance not in _ours(daemon)
        child.begin("steady", ALLOWED[4], PORT)
        events = client.events()
        (tmp_path / "count").write_text("0", encoding="ascii")
        assert eventually(lambda: _reasons(daemon) == {"bpf": "", "firewall": ""})
        assert child.weather() == "allowed"
        assert any(isinstance(each, Notice) and each.code == "layer_joined" for each in events)
        assert child.sandbox in _ours(daemon)
        with _firewall_alone(daemon, child):
            assert child.does("tcp", ALLOWED[4], PORT) == "allowed"
            assert child.does("tcp", FORBIDDEN[4], PORT) == "Connection refused"
        _holds(daemon)


@contextlib.contextmanager
def _firewall_alone(daemon: Daemon, child: Resident) -> Iterator[None]:
    """Take the programs off a sandbox, while the daemon cannot put them back."""
    assert daemon.process is not None
    daemon.process.send_signal(signal.SIGSTOP)
    try:
        BpfLayer().withdraw([Tree(find_mount(), daemon.instance).box(child.sandbox)])
        yield
    finally:
        daemon.process.send_signal(signal.SIGCONT)


def test_programs_that_can_be_loaded_later_join_and_loopback_stays_closed(
    daemon: Daemon, tmp_path: Path
) -> None:
    daemon.prefix = _without_bpf(tmp_path)
    daemon.start()
    daemon.wait()
    assert "bpf" in _reasons(daemon)["bpf"]
    with resident(daemon.socket, ONE) as child:
        assert child.does("tcp", FORBIDDEN[4], PORT) == "Connection refused"
        assert child.does("own", "127.0.0.1", PORT) == "Connection refused"
        child.begin("storm", "127.0.0.1", PORT)
        (tmp_path / "closed").unlink()
        assert eventually(lambda: _reasons(daemon) == {"bpf": "", "firewall": ""})
        assert child.weather() == "silent"
        assert child.does("tcp", FORBIDDEN[4], PORT) == "Operation not permitted"
        assert child.does("tcp", ALLOWED[4], PORT) == "allowed"
        assert child.does("own", "127.0.0.1", PORT) == "allowed"
        _holds(daemon)
        assert not re.search("-d[46]$", _ours(daemon), re.MULTILINE)  # where refusals were noted


# The daemon as it is, but bpf(2) fails while a file is there.
_NO_BPF: Final = """
import os, sys
sys.path.insert(0, {helper!r})
from democrai_osguard_helper import kernel, main
real = kernel.map_create
def map_create(*words):
    if os.path.exists({closed!r}):
        raise PermissionError(1, "closed by the test", "map_create")
    return real(*words)
kernel.map_create = map_create
sys.exit(main.serve(sys.argv[sys.argv.index("--layers"):]))
"""


def _without_bpf(folder: Path) -> tuple[str, ...]:
    (folder / "closed").touch()
    script = _NO_BPF.format(helper=str(HELPER), closed=str(folder / "closed"))
    return (sys.executable, "-I", "-c", script)


def test_rules_that_cannot_be_removed_are_said_and_removed_later(
    daemon: Daemon, tmp_path: Path
) -> None:
    daemon.start()
    daemon.wait()
    with resident(daemon.socket, ONE) as child:
        daemon.kill()
        daemon.layers = "bpf"
        _spoil(daemon, tmp_path, "iptables-restore", "-w", 1000)
        daemon.start()
        daemon.wait()
        assert "may refuse too much" in _reasons(daemon)["firewall"]
        assert daemon.instance in _ours(daemon)
        (tmp_path / "count").write_text("0", encoding="ascii")
        assert eventually(lambda: "may refuse" not in _reasons(daemon)["firewall"])
        assert _ours(daemon) == ""
        assert child.does("tcp", ALLOWED[4], PORT) == "allowed"
        _holds(daemon)


def test_programs_that_an_operator_switches_off_let_go(daemon: Daemon) -> None:
    daemon.start()
    daemon.wait()
    with resident(daemon.socket, ONE) as child:
        daemon.kill()
        daemon.layers = "firewall"
        daemon.start()
        daemon.wait()
        assert child.does("tcp", FORBIDDEN[4], PORT) == "Connection refused"
        with Client(daemon.socket) as client:
            client.update(Update(child.sandbox, TWO, ()))
        assert child.does("tcp", ALLOWED[4], PORT) == "allowed"
        assert child.does("tcp", FORBIDDEN[4], PORT) == "allowed"
        assert child.does("tcp", FORBIDDEN[4], OTHER_PORT) == "Connection refused"


def test_a_layer_that_an_operator_switches_off_lets_go(daemon: Daemon) -> None:
    daemon.start()
    daemon.wait()
    with resident(daemon.socket, ONE) as child:
        assert daemon.instance in _ours(daemon)
        daemon.kill()
        daemon.layers = "bpf"
        daemon.start()
        daemon.wait()
        assert child.does("tcp", ALLOWED[4], PORT) == "allowed"
        assert child.does("tcp", FORBIDDEN[4], PORT) == "Operation not permitted"
        _holds(daemon)
    assert _ours(daemon) == ""


def test_the_only_layer_is_not_given_up(daemon: Daemon, tmp_path: Path) -> None:
    daemon.layers = "firewall"
    daemon.start()
    daemon.wait()
    with resident(daemon.socket, ONE) as child:
        daemon.kill()
        _spoil(daemon, tmp_path, "ipset", "restore", 1000)
        daemon.start()
        daemon.wait()
        assert child.does("tcp", FORBIDDEN[4], PORT) == "Connection refused"
        assert child.does("tcp", ALLOWED[4], PORT) == "allowed"
        other = Resident(daemon.socket, ONE)
        other.end()
        assert other.sandbox.startswith("! ")
    daemon.kill()
    daemon.prefix = ()
    daemon.start()
    daemon.wait()
