"""Others write to the firewall too: what they flush stays closed, and is repaired and reported."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from typing import TYPE_CHECKING, Final

import pytest
from root.daemons import Daemon, Resident, eventually, resident
from root.lab import ALLOWED, FORBIDDEN, PORT

from democrai_osguard_helper import kernel
from democrai_osguard_helper.cgroups import Tree, find_mount
from democrai_osguard_helper.client import Client, HelperUnavailable
from democrai_osguard_helper.endpoints import Endpoint, parse_network
from democrai_osguard_helper.firewall_plan import Names
from democrai_osguard_helper.loop import Loop
from democrai_osguard_helper.protocol import Notice
from democrai_osguard_helper.ruleset_news import RulesetNews
from democrai_osguard_helper.upkeep import MAX_COLLECTED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.needs("bpf", "iptables", "ipset")
ONE: Final = (Endpoint(parse_network(ALLOWED[4]), PORT),)
OTHERS: Final = "198.51.100.2"
RELOADED: Final = b"*filter\n:INPUT ACCEPT\n:FORWARD ACCEPT\n:OUTPUT ACCEPT\nCOMMIT\n"
# As the file that Debian's nftables service loads: everything is flushed, and then made anew.
SERVICE: Final = b"""flush ruleset
table inet filter {
    chain input { type filter hook input priority filter; }
    chain output { type filter hook output priority filter; }
}
"""
FLUSHES: Final = {
    "iptables -F": "iptables -F",
    "ip6tables -F": "ip6tables -F",
    "nft flush ruleset": "nft flush ruleset",
    "delete our jump": "iptables -D OUTPUT 1",
    "a rule in front of ours": "iptables -I OUTPUT -j ACCEPT",
    "empty our sets": "ipset flush",
    "a firewall manager that reloads": "iptables-restore /dev/stdin",
    "a firewall service that reloads": "nft -f /dev/stdin",
}


def _repairs(daemon: Daemon) -> int:
    with Client(daemon.socket) as client:
        return client.status().repairs


def _is_complete(daemon: Daemon) -> bool:
    with Client(daemon.socket) as client:
        return not any(layer.reason for layer in client.status().layers)


@pytest.mark.always
@pytest.mark.parametrize("flush", FLUSHES)
def test_a_foreign_change_opens_nothing_and_is_repaired(daemon: Daemon, flush: str) -> None:
    daemon.start()
    daemon.wait()
    with resident(daemon.socket, ONE) as child:
        child.begin("storm", FORBIDDEN[4], PORT)
        given = SERVICE if flush.startswith("a firewall service") else RELOADED
        subprocess.run(FLUSHES[flush].split(), input=given, check=True)
        assert eventually(lambda: _repairs(daemon) > 0)
        assert child.weather() == "silent"
        assert child.does("tcp", ALLOWED[4], PORT) == "allowed"


def test_what_happens_stands_in_the_daemons_own_journal(daemon: Daemon, tmp_path: Path) -> None:
    log = tmp_path / "log"
    daemon.prefix = ("sh", "-c", f'exec "$@" 2>{log}', "sh")
    daemon.start()
    daemon.wait()
    subprocess.run(["iptables", "-F"], check=True)
    assert eventually(lambda: "repaired: the firewall layer holds again" in log.read_text("utf-8"))
    lines = log.read_text("utf-8").splitlines()
    assert lines[0] == "democrai-osguard-helper: every layer holds"
    changed = "drift: the firewall layer was changed by somebody else"
    assert f"democrai-osguard-helper: {changed}" in lines


@contextlib.contextmanager
def heard(daemon: Daemon) -> Iterator[list[str]]:
    """Yield the codes of what the daemon reports meanwhile."""
    codes: list[str] = []
    client = Client(daemon.socket)

    def listen() -> None:
        for event in client.events():
            codes.extend([event.code] if isinstance(event, Notice) else [])

    listener = threading.Thread(target=_quietly, args=(listen,))
    listener.start()
    try:
        yield codes
    finally:
        client.hang_up()
        listener.join()
        client.close()


def _quietly(act: Callable[[], None]) -> None:
    with contextlib.suppress(HelperUnavailable):  # we hang up ourselves
        act()


EXCHANGES: Final = {
    "another address": ("del {set} {own}", "add {set} {other}"),
    "an exception": ("del {set} {own}", "add {set} {own} nomatch"),
}


@pytest.mark.parametrize("exchange", EXCHANGES)
def test_a_member_that_somebody_exchanged_is_repaired_and_reported(
    daemon: Daemon, exchange: str
) -> None:
    daemon.layers = "firewall"
    daemon.start()
    daemon.wait()
    with resident(daemon.socket, ONE) as child, heard(daemon) as codes:
        assert child.does("tcp", ALLOWED[4], PORT) == "allowed"
        words = {
            "set": Names(daemon.instance, "").set(child.sandbox, "p4"),
            "own": f"{ALLOWED[4]},tcp:{PORT}", "other": f"{FORBIDDEN[4]},tcp:{PORT}",
        }  # fmt: skip
        lines = [line.format(**words) for line in EXCHANGES[exchange]]
        subprocess.run(["ipset", "restore"], input="\n".join([*lines, ""]).encode(), check=True)
        assert eventually(lambda: "repaired" in codes)
        assert child.does("tcp", FORBIDDEN[4], PORT) == "Connection refused"
        assert child.does("tcp", ALLOWED[4], PORT) == "allowed"
    assert codes == ["drift", "repaired"]


@pytest.mark.parametrize("flush", ["iptables -F", "nft flush ruleset"])
def test_the_firewall_alone_is_repaired_within_seconds(daemon: Daemon, flush: str) -> None:
    daemon.layers = "firewall"
    daemon.start()
    daemon.wait()
    with resident(daemon.socket, ONE) as child:
        subprocess.run(FLUSHES[flush].split(), check=True)
        assert eventually(lambda: child.does("tcp", FORBIDDEN[4], PORT) == "Connection refused")
        assert child.does("tcp", ALLOWED[4], PORT) == "allowed"


@pytest.mark.usefixtures("network")
@pytest.mark.parametrize("flush", ["iptables -F", "nft flush ruleset"])
def test_a_change_of_the_rules_is_told_before_anybody_looks(flush: str) -> None:
    subprocess.run(["iptables", "-A", "INPUT", "-s", "198.51.100.1", "-j", "DROP"], check=True)
    loop, told = Loop(), list[bool]()
    news = RulesetNews(loop, lambda: told.append(True))
    loop.turn(0)
    assert not told
    subprocess.run(FLUSHES[flush].split(), check=True)

    def heard() -> bool:
        loop.turn(0.05)
        return bool(told)

    assert eventually(heard)
    news.close()
    loop.close()


LEGACY: Final = "/usr/sbin/xtables-legacy-multi"


@pytest.mark.needs("iptables-legacy")
def test_the_legacy_backend_holds_too_and_survives_dead_cgroups(daemon: Daemon) -> None:
    """With it, a rule for a cgroup that is gone would make every later change fail."""
    script = f'mount --bind {LEGACY} /usr/sbin/xtables-nft-multi && exec "$@"'
    daemon.prefix = ("unshare", "-m", "sh", "-c", script, "sh")
    daemon.layers = "firewall"
    daemon.start()
    daemon.wait()
    for _ in range(3):
        with resident(daemon.socket, ONE) as child:
            assert child.does("tcp", ALLOWED[4], PORT) == "allowed"
            assert child.does("tcp", FORBIDDEN[4], PORT) == "Connection refused"
    with Client(daemon.socket) as client:
        assert eventually(lambda: not client.list().sandboxes)
    with resident(daemon.socket, ONE) as child:
        subprocess.run(["iptables-legacy", "-F"], check=True)
        assert eventually(lambda: child.does("tcp", FORBIDDEN[4], PORT) == "Connection refused")
        assert child.does("tcp", ALLOWED[4], PORT) == "allowed"


def test_a_detached_program_is_attached_again_and_reported(daemon: Daemon) -> None:
    daemon.start()
    daemon.wait()
    with resident(daemon.socket, ONE) as child, heard(daemon) as codes:
        box = Tree(find_mount(), daemon.instance).box(child.sandbox)
        descriptor = os.open(box.path, os.O_RDONLY | os.O_DIRECTORY)
        kernel.prog_detach(descriptor, 10)
        os.close(descriptor)
        # The firewall holds meanwhile: a reset instead of EPERM.
        assert child.does("tcp", FORBIDDEN[4], PORT) in {
            "Connection refused",
            "Operation not permitted",
        }
        assert eventually(lambda: "repaired" in codes)
        assert child.does("tcp", FORBIDDEN[4], PORT) == "Operation not permitted"
    assert codes == ["drift", "repaired"]


def test_what_cannot_be_repaired_is_frozen_then_killed(daemon: Daemon) -> None:
    """The only layer is flushed, and the program that would repair it is gone."""
    daemon.layers = "firewall"
    daemon.prefix = ("unshare", "-m")
    daemon.start()
    daemon.wait()
    assert daemon.process is not None
    with Client(daemon.socket) as client, resident(daemon.socket, ONE) as child:
        events = client.events()
        inside = ("nsenter", "-m", "-t", str(daemon.process.pid))
        hidden = ("mount", "--bind", "/dev/null", "/usr/sbin/iptables-restore")
        subprocess.run([*inside, *hidden], check=True)
        subprocess.run(["iptables", "-F"], check=True)
        codes = []
        for event in events:
            codes.append(event.code if isinstance(event, Notice) else "denial")
            if codes[-1] == "killed":
                break
        assert codes.index("drift") < codes.index("repair_failed") < codes.index("frozen")
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        subprocess.run([*inside, "umount", "/usr/sbin/iptables-restore"], check=True)
    with Client(daemon.socket) as client:  # with its program back, it repairs and tidies up
        assert eventually(lambda: not client.list().sandboxes)


def test_an_end_that_cannot_tidy_up_fails_and_the_next_start_does_it(daemon: Daemon) -> None:
    daemon.prefix = ("unshare", "-m")
    daemon.start()
    daemon.wait()
    assert daemon.process is not None
    inside = ("nsenter", "-m", "-t", str(daemon.process.pid))
    hidden = ("mount", "--bind", "/dev/null", "/usr/sbin/iptables-restore")
    subprocess.run([*inside, *hidden], check=True)
    daemon.stop()
    assert daemon.process.returncode == 1
    daemon.prefix = ()
    daemon.start()
    daemon.wait()
    daemon.stop()
    assert daemon.process.returncode == 0
    saved = subprocess.run(["iptables-save"], capture_output=True, text=True, check=True).stdout
    assert "OSG" not in saved


def test_an_end_removes_all_sandboxes_that_nobody_is_in(daemon: Daemon) -> None:
    """More than are collected in two rounds: the last regular one, and that of the end."""
    daemon.start()
    daemon.wait()
    assert daemon.process is not None
    children = [Resident(daemon.socket, ONE) for _ in range(2 * MAX_COLLECTED + 8)]
    assert not [child.sandbox for child in children if child.sandbox.startswith("!")]
    daemon.process.send_signal(signal.SIGSTOP)  # so that none is collected before
    for child in children:
        child.end()
    daemon.process.terminate()
    daemon.process.send_signal(signal.SIGCONT)
    assert daemon.process.wait() == 0
    words = ["ipset", "list", "-n"]
    sets = subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()
    assert [name for name in sets if Names(daemon.instance, "").box_of(name)] == []
    assert not os.path.exists(Tree(find_mount(), daemon.instance).path)


@pytest.mark.always
def test_another_writer_at_the_same_time_loses_nothing(daemon: Daemon) -> None:
    daemon.start()
    daemon.wait()
    ended = threading.Event()

    def write() -> None:
        while not ended.is_set():
            for verb in ("-A", "-D"):
                words = f"iptables -w {verb} INPUT -s 198.51.100.1 -j DROP"
                subprocess.run(words.split(), check=True)

    other = f"iptables -w -A INPUT -s {OTHERS} -j DROP"
    subprocess.run(other.split(), check=True)
    writer = threading.Thread(target=write)
    writer.start()
    for _ in range(5):
        with resident(daemon.socket, ONE) as child:
            assert child.does("tcp", ALLOWED[4], PORT) == "allowed"
            assert child.does("tcp", FORBIDDEN[4], PORT) == "Operation not permitted"
    ended.set()
    writer.join()
    saved = subprocess.run(["iptables-save"], capture_output=True, text=True, check=True).stdout
    assert f"-A INPUT -s {OTHERS}/32 -j DROP" in saved
    assert _repairs(daemon) == 0


@pytest.mark.usefixtures("network")
def test_two_instances_do_not_meet(tmp_path: Path) -> None:
    names = [f"{letter}{os.getpid() % 1000000}" for letter in "ab"]
    daemons = [Daemon(tmp_path / name, name) for name in names]
    for daemon in daemons:
        daemon.folder.mkdir()
        daemon.start()
    try:
        for daemon in daemons:
            daemon.wait()
            # They start at the same moment: a layer that the other one spoilt joins later.
            assert eventually(lambda daemon=daemon: _is_complete(daemon))  # type: ignore[misc]
        with resident(daemons[0].socket, ONE) as first, resident(daemons[1].socket, ()) as second:
            assert first.does("tcp", ALLOWED[4], PORT) == "allowed"
            assert second.does("tcp", ALLOWED[4], PORT) == "Operation not permitted"
            daemons[1].kill()
            daemons[1].start()
            daemons[1].wait()
            assert first.does("tcp", ALLOWED[4], PORT) == "allowed"
            assert not eventually(lambda: _repairs(daemons[0]) > 0, 1.5)
    finally:
        for daemon in daemons:
            daemon.stop()


@pytest.mark.parametrize("same", ["state", "instance"])
def test_a_second_daemon_on_the_same_state_or_instance_refuses_to_start(
    daemon: Daemon, same: str
) -> None:
    daemon.start()
    daemon.wait()
    folder = daemon.folder if same == "state" else daemon.folder / "other"
    folder.mkdir(exist_ok=True)
    second = Daemon(folder, daemon.instance)
    second.socket = str(folder / "other.sock")
    second.start()
    assert second.process is not None
    assert second.process.wait(60) == 1
    with resident(daemon.socket, ONE) as child:
        assert child.does("tcp", ALLOWED[4], PORT) == "allowed"
