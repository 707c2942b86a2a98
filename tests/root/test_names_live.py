"""Names, resolved by the daemon's resolver from a server of the test's own."""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import subprocess
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from root.daemons import eventually, resident
from root.lab import ALLOWED, FORBIDDEN, PORT

from democrai_osguard_helper.client import Client
from democrai_osguard_helper.endpoints import Endpoint, NameRule, parse_network
from democrai_osguard_helper.protocol import Update

if TYPE_CHECKING:
    from collections.abc import Iterator

    from root.daemons import Daemon

pytestmark = pytest.mark.needs("bpf", "iptables", "ipset")
SERVER: Final = "198.18.0.53"
WITHIN: Final = (parse_network("198.18.0.0/15"), parse_network("fd00:5::/32"))


class Zone:
    """A name server that knows what the test tells it, and answers `ok` to `hello`."""

    def __init__(self) -> None:
        self.names: dict[str, list[str]] = {}
        self.ttl = 600
        self._talk = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._talk.bind((SERVER, 53))
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while not self._ended.is_set():
            if select.select([self._talk], [], [], 0.05)[0]:
                data, sender = self._talk.recvfrom(4096)
                answer = b"ok" if data == b"hello" else self._answer(data)
                with contextlib.suppress(OSError):
                    self._talk.sendto(answer, sender)

    def _answer(self, data: bytes) -> bytes:
        labels, place = [], 12
        while data[place]:
            labels.append(data[place + 1 : place + 1 + data[place]].decode())
            place += 1 + data[place]
        question = data[12 : place + 5]
        (kind,) = struct.unpack_from(">H", data, place + 1)
        known = self.names.get(".".join(labels))
        family = {1: socket.AF_INET, 28: socket.AF_INET6}[kind]
        records = [
            struct.pack(">HHHIH", 0xC00C, kind, 1, self.ttl, len(packed)) + packed
            for text in known or ()
            if (":" in text) is (kind == 28)
            for packed in (socket.inet_pton(family, text),)
        ]
        code = 0x8180 if known is not None else 0x8183
        head = data[:2] + struct.pack(">5H", code, 1, len(records), 0, 0)
        return head + question + b"".join(records)

    def close(self) -> None:
        self._ended.set()
        self._thread.join()
        self._talk.close()


@pytest.fixture
def zone(daemon: Daemon) -> Iterator[Zone]:
    subprocess.run(f"ip addr add {SERVER}/32 dev lo".split(), check=True)
    config = daemon.folder / "resolv.conf"
    config.write_text(f"nameserver {SERVER}\n")
    daemon.folder.chmod(0o755)
    for parent in daemon.folder.parents[:2]:
        parent.chmod(0o755)
    config.chmod(0o644)
    script = f'mount --bind {config} /etc/resolv.conf && exec "$@"'
    daemon.prefix = ("unshare", "-m", "sh", "-c", script, "sh")
    own = Zone()
    daemon.start("--refresh-seconds", "0.5")
    daemon.wait()
    yield own
    own.close()


def test_a_name_opens_all_its_addresses_and_the_resolvers(daemon: Daemon, zone: Zone) -> None:
    zone.names["svc.example.com"] = [ALLOWED[4], ALLOWED[6]]
    rules = (NameRule("svc.example.com", PORT, None, WITHIN),)
    with resident(daemon.socket, (), rules) as child:
        assert child.does("tcp", ALLOWED[4], PORT) == "allowed"
        assert child.does("tcp", ALLOWED[6], PORT) == "allowed"
        assert child.does("tcp", FORBIDDEN[4], PORT) == "Operation not permitted"
        assert child.does("udp", SERVER, 53) == "allowed"


@pytest.mark.usefixtures("zone")
def test_without_a_name_the_resolvers_are_closed(daemon: Daemon) -> None:
    with resident(daemon.socket, (Endpoint(parse_network(ALLOWED[4]), PORT),)) as child:
        assert child.does("udp", SERVER, 53) == "Operation not permitted"


def test_a_name_that_turns_elsewhere_is_followed(daemon: Daemon, zone: Zone) -> None:
    zone.names["svc.example.com"] = [ALLOWED[4]]
    rules = (NameRule("svc.example.com", PORT, None, WITHIN),)
    with resident(daemon.socket, (), rules) as child:
        assert child.does("tcp", FORBIDDEN[4], PORT) == "Operation not permitted"
        zone.names["svc.example.com"] = [FORBIDDEN[4]]
        assert eventually(lambda: child.does("tcp", FORBIDDEN[4], PORT) == "allowed")
        assert child.does("tcp", ALLOWED[4], PORT) == "allowed"  # it was valid a moment ago


def test_a_name_must_not_turn_to_an_inner_address(daemon: Daemon, zone: Zone) -> None:
    zone.names["svc.example.com"] = [ALLOWED[4], "169.254.169.254", "127.0.0.1", "10.0.0.1"]
    rules = (NameRule("svc.example.com", PORT),)
    with resident(daemon.socket, (), rules) as child, Client(daemon.socket) as client:
        assert child.does("tcp", ALLOWED[4], PORT) == "Operation not permitted"
        assert child.does("tcp", "127.0.0.1", PORT) == "Operation not permitted"
        applied = client.update(Update(child.sandbox, (), rules))
    assert len(applied.failed_names) == 4
    assert "svc.example.com: 169.254.169.254 is link-local: metadata services" in (
        applied.failed_names
    )


def test_a_name_that_fails_is_reported_and_the_others_stand(daemon: Daemon, zone: Zone) -> None:
    zone.names["svc.example.com"] = [ALLOWED[4]]
    good = NameRule("svc.example.com", PORT, None, WITHIN)
    rules = (good, NameRule("gone.example.com", PORT), NameRule("*.example.com", PORT))
    with resident(daemon.socket, (), rules) as child, Client(daemon.socket) as client:
        assert child.does("tcp", ALLOWED[4], PORT) == "allowed"
        applied = client.update(Update(child.sandbox, (), rules))
        del zone.names["svc.example.com"]
        assert not eventually(lambda: child.does("tcp", ALLOWED[4], PORT) != "allowed", 1.5)
    assert applied.failed_names == (
        "gone.example.com: no such name",
        "*.example.com: opens resolvers only; ask for each name below it by itself",
    )


def test_a_name_below_a_suffix_is_closed_until_it_is_asked_for_by_itself(
    daemon: Daemon, zone: Zone
) -> None:
    zone.names["svc.example.com"] = [ALLOWED[4]]
    below = NameRule("*.example.com", PORT, None, WITHIN)
    with resident(daemon.socket, (), (below,)) as child, Client(daemon.socket) as client:
        assert child.does("udp", SERVER, 53) == "allowed"
        assert child.does("tcp", ALLOWED[4], PORT) == "Operation not permitted"
        asked = NameRule("svc.example.com", PORT, None, WITHIN)
        client.update(Update(child.sandbox, (), (below, asked)))
        assert child.does("tcp", ALLOWED[4], PORT) == "allowed"


def test_an_update_does_not_cut_a_connection_to_where_a_name_was(
    daemon: Daemon, zone: Zone
) -> None:
    """The name has turned elsewhere and its old address is out of date, but still used."""
    zone.names["svc.example.com"], zone.ttl = [ALLOWED[4]], 5
    rules = (NameRule("svc.example.com", PORT, None, WITHIN),)
    other = (Endpoint(parse_network("192.0.2.9"), PORT),)
    with resident(daemon.socket, (), rules) as child, Client(daemon.socket) as client:
        assert child.does("hold", ALLOWED[4], PORT) == "allowed"
        assert child.does("tcp", FORBIDDEN[4], PORT) == "Operation not permitted"
        zone.names["svc.example.com"] = [FORBIDDEN[4]]
        assert eventually(lambda: child.does("tcp", FORBIDDEN[4], PORT) == "allowed", 60)
        time.sleep(6)  # longer than an address that was not seen again stays by itself
        assert client.update(Update(child.sandbox, other, rules)).destroyed == 0
        assert child.does("talk", ALLOWED[4], PORT) == "allowed"
        assert client.update(Update(child.sandbox, other, ())).destroyed == 1


def _status(pid: str) -> dict[str, str]:
    with open(f"/proc/{pid}/status", encoding="utf-8") as file:
        return dict(line.rstrip("\n").split(":\t", 1) for line in file)


def _resolver_of(pid: int) -> str:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    for child in children:
        with contextlib.suppress(FileNotFoundError):
            if b"resolver.run()" in Path(f"/proc/{child}/cmdline").read_bytes():
                return child
    raise AssertionError("no resolver runs")


def test_the_resolver_is_nobody(daemon: Daemon, zone: Zone) -> None:
    zone.names["svc.example.com"] = [ALLOWED[4]]
    rules = (NameRule("svc.example.com", PORT, None, WITHIN),)
    assert daemon.process is not None
    with resident(daemon.socket, (), rules):
        status = _status(_resolver_of(daemon.process.pid))
    assert status["Uid"].split() == ["65534"] * 4
    assert (status["Groups"].strip(), int(status["CapEff"], 16)) == ("", 0)
