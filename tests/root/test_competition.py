"""Others write to the firewall too: what they flush stays closed, and is repaired and reported."""

from __future__ import annotations

import os
import subprocess
import threading
from typing import TYPE_CHECKING, Final

import pytest
from root.daemons import Daemon, eventually, resident
from root.lab import ALLOWED, FORBIDDEN, PORT

from democrai_osguard_helper import kernel
from democrai_osguard_helper.cgroups import Tree, find_mount
from democrai_osguard_helper.client import Client
from democrai_osguard_helper.endpoints import Endpoint, parse_network
from democrai_osguard_helper.loop import Loop
from democrai_osguard_helper.protocol import Notice
from democrai_osguard_helper.ruleset_news import RulesetNews

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.needs("bpf", "iptables", "ipset")
ONE: Final = (Endpoint(parse_network(ALLOWED[4]), PORT),)
OTHERS: Final = "198.51.100.2"
FLUSHES: Final = {
    "iptables -F": "iptables -F",
    "ip6tables -F": "ip6tables -F",
    "nft flush ruleset": "nft flush ruleset",
    "delete our jump": "iptables -D OUTPUT 1",
    "a rule in front of ours": "iptables -I OUTPUT -j ACCEPT",
    "empty our sets": "ipset flush",
}


def _repairs(daemon: Daemon) -> int:
    with Client(daemon.socket) as client:
        return client.status().repairs


@pytest.mark.parametrize("flush", FLUSHES)
def test_a_foreign_change_opens_nothing_and_is_repaired(daemon: Daemon, flush: str) -> None:
    daemon.start()
    daemon.wait()
    with resident(daemon.socket, ONE) as child:
        child.begin("storm", FORBIDDEN[4], PORT)
        subprocess.run(FLUSHES[flush].split(), check=True)
        assert eventually(lambda: _repairs(daemon) > 0)
        assert child.weather() == "silent"
        assert child.does("tcp", ALLOWED[4], PORT) == "allowed"


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
    heard: list[str] = []
    client = Client(daemon.socket)

    def listen() -> None:
        for event in client.events():
            if isinstance(event, Notice):
                heard.append(event.code)
            if "repaired" in heard:
                return

    listener = threading.Thread(target=listen)
    listener.start()
    with resident(daemon.socket, ONE) as child:
        box = Tree(find_mount(), daemon.instance).box(child.sandbox)
        descriptor = os.open(box.path, os.O_RDONLY | os.O_DIRECTORY)
        kernel.prog_detach(descriptor, 10)
        os.close(descriptor)
        # The firewall holds meanwhile: a reset instead of EPERM.
        assert child.does("tcp", FORBIDDEN[4], PORT) in {
            "Connection refused",
            "Operation not permitted",
        }
        listener.join(60)
        assert child.does("tcp", FORBIDDEN[4], PORT) == "Operation not permitted"
    client.close()
    assert heard == ["drift", "repaired"]


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
