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
from command_line import osguard
from root.daemons import NOBODY, become, eventually, resident
from root.lab import ALLOWED, FORBIDDEN, OTHER_PORT, PORT
from root.test_launcher_egress import launch

from democrai_osguard.approvals import ApprovalService, open_store
from democrai_osguard.enforcement.following import EgressLink
from democrai_osguard_helper.client import Client
from democrai_osguard_helper.endpoints import Endpoint, NameRule, parse_network
from democrai_osguard_helper.protocol import Denial, Notice, Revoke, Update

if TYPE_CHECKING:
    from collections.abc import Iterator

    from root.daemons import Daemon

pytestmark = pytest.mark.needs("bpf", "iptables", "ipset")
ACT: Final = ("tcp", ALLOWED[4], PORT)
SERVER: Final = "198.18.0.53"
WITHIN: Final = (parse_network("198.18.0.0/15"), parse_network("fd00:5::/32"))


class Zone:
    """A name server that knows what the test tells it, and answers `ok` to `hello`.

    To a name with `dead` in it there is no answer.
    """

    def __init__(self) -> None:
        self.names: dict[str, list[str]] = {}
        self.ttl = 600
        self.broken: set[int] = set()  # kinds of questions that end in a server failure
        self._talk = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._talk.bind((SERVER, 53))
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while not self._ended.is_set():
            if select.select([self._talk], [], [], 0.05)[0]:
                data, sender = self._talk.recvfrom(4096)
                if b"dead" in data:
                    continue
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
        if kind in self.broken:
            return data[:2] + struct.pack(">5H", 0x8182, 1, 0, 0, 0) + question
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
def zone(daemon: Daemon, open_folder: str) -> Iterator[Zone]:
    daemon.socket = f"{open_folder}/helper.sock"
    subprocess.run(f"ip addr add {SERVER}/32 dev lo".split(), check=True)
    config = daemon.folder / "resolv.conf"
    config.write_text(f"nameserver {SERVER}\n")
    config.chmod(0o644)
    script = f'mount --bind {config} /etc/resolv.conf && exec "$@"'
    daemon.prefix = ("unshare", "-m", "sh", "-c", script, "sh")
    own = Zone()
    daemon.start("--refresh-seconds", "0.5", "--group", "nogroup")
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


def test_a_sandbox_says_how_old_its_names_may_get(daemon: Daemon, zone: Zone) -> None:
    daemon.stop()
    daemon.start("--refresh-seconds", "3600")
    daemon.wait()
    zone.names |= {"svc.example.com": [ALLOWED[4]], "old.example.com": [ALLOWED[4]]}
    young = (NameRule("svc.example.com", PORT, None, WITHIN),)
    old = (NameRule("old.example.com", PORT, None, WITHIN),)
    with (
        resident(daemon.socket, (), young, refresh=5) as child,
        resident(daemon.socket, (), old) as other,
    ):
        zone.names |= {"svc.example.com": [FORBIDDEN[4]], "old.example.com": [FORBIDDEN[4]]}
        assert child.does("tcp", FORBIDDEN[4], PORT) == "Operation not permitted"
        assert eventually(lambda: child.does("tcp", FORBIDDEN[4], PORT) == "allowed", 60)
        assert other.does("tcp", FORBIDDEN[4], PORT) == "Operation not permitted"


def test_a_name_must_not_turn_to_an_inner_address(daemon: Daemon, zone: Zone) -> None:
    zone.names["svc.example.com"] = [ALLOWED[4], "169.254.169.254", "127.0.0.1", "10.0.0.1"]
    rules = (NameRule("svc.example.com", PORT),)
    with resident(daemon.socket, (), rules) as child, Client(daemon.socket) as client:
        assert child.does("tcp", ALLOWED[4], PORT) == "Operation not permitted"
        assert child.does("tcp", "127.0.0.1", PORT) == "Operation not permitted"
        applied = client.update(Update(child.sandbox, (), rules))
    first = f"{ALLOWED[4]} is benchmarks, and 3 more are inside"
    assert applied.failed_names == (f"svc.example.com: {first}",)


def test_a_name_turns_to_an_inner_address_where_another_rule_opens_it(
    daemon: Daemon, zone: Zone
) -> None:
    zone.names["in.example.com"] = [ALLOWED[4]]
    name = ["--connect", f"in.example.com:{PORT}"]
    assert launch(daemon, name, ACT).returncode == 1
    for beside in (ALLOWED[4], f"{ALLOWED[4]}/31", f"{ALLOWED[4]}:{PORT}"):
        done = launch(daemon, [*name, "--connect", beside.replace("1/31", "0/31")], ACT)
        assert (done.returncode, done.stdout, done.stderr) == (0, "ok\n", "")


@pytest.mark.parametrize("place", [ALLOWED[4], "198.18.0.0/15"])
def test_a_name_that_leads_into_a_range_opens_no_other_port_there(
    daemon: Daemon, zone: Zone, place: str
) -> None:
    zone.names["in.example.com"] = [ALLOWED[4]]
    beside = (Endpoint(parse_network(place), OTHER_PORT),)
    rules = (NameRule("in.example.com", PORT),)
    with resident(daemon.socket, beside, rules) as child, Client(daemon.socket) as client:
        assert child.does("tcp", ALLOWED[4], OTHER_PORT) == "allowed"
        assert child.does("tcp", ALLOWED[4], PORT) == "Operation not permitted"
        applied = client.update(Update(child.sandbox, beside, rules))
        assert applied.failed_names == (f"in.example.com: {ALLOWED[4]} is benchmarks",)


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


def test_a_refusal_says_by_which_name_the_address_was_looked_up(
    daemon: Daemon, zone: Zone, tmp_path: Path
) -> None:
    zone.names["svc.example.com"] = [ALLOWED[4], ALLOWED[6]]
    rules = (NameRule("svc.example.com", PORT, None, WITHIN),)
    service = ApprovalService(open_store(f"sqlite://{tmp_path}/own/a.sqlite3"))
    with (
        resident(daemon.socket, (), rules) as child,
        EgressLink(service, daemon.socket),
        Client(daemon.socket) as client,
    ):
        denials = (event for event in client.events() if isinstance(event, Denial))
        for address, protocol in ((ALLOWED[4], "tcp"), (ALLOWED[6], "udp")):
            assert child.does(protocol, address, OTHER_PORT) == "Operation not permitted"
            event = next(denials)
            assert (event.address, event.port, event.protocol) == (address, OTHER_PORT, protocol)
            assert (event.name, event.sandbox) == ("svc.example.com", child.sandbox)
        assert child.does("tcp", FORBIDDEN[4], PORT) == "Operation not permitted"
        assert next(denials).name is None  # nobody looked that one up
        wanted = {f"svc.example.com:{OTHER_PORT}", f"{FORBIDDEN[4]}:{PORT}"}
        assert eventually(lambda: {r.rule.target for r in service.list_requests()} == wanted)
    service.close()


def test_a_refusal_does_not_tell_what_the_sandbox_of_another_user_looked_up(
    daemon: Daemon, zone: Zone
) -> None:
    zone.names["svc.example.com"] = [ALLOWED[4]]
    rules = (NameRule("svc.example.com", PORT, None, WITHIN),)
    with (
        resident(daemon.socket, (), rules) as child,
        resident(daemon.socket, (), before=lambda: become(NOBODY)) as other,
        Client(daemon.socket) as client,
    ):
        denials = (event for event in client.events() if isinstance(event, Denial))
        for each, name in ((child, "svc.example.com"), (other, None)):
            assert each.does("tcp", ALLOWED[4], OTHER_PORT) == "Operation not permitted"
            event = next(denials)
            assert (event.sandbox, event.name) == (each.sandbox, name)


def test_names_that_nobody_answers_do_not_hold_up_another_sandbox(
    daemon: Daemon, zone: Zone
) -> None:
    zone.names["svc.example.com"] = [ALLOWED[4]]
    dead = [NameRule(f"dead{number}.example.com", PORT) for number in range(200)]
    good = (NameRule("svc.example.com", PORT, None, WITHIN),)

    def reaches() -> str:
        with resident(daemon.socket, (), good) as child:
            return child.does("tcp", ALLOWED[4], PORT)

    with resident(daemon.socket, (), dead):
        begun = time.monotonic()
        assert [reaches(), reaches()] == ["allowed", "allowed"]
        time.sleep(7)  # until the names of the first one are looked up again
        assert reaches() == "allowed"
        assert time.monotonic() - begun < 7 + 8
    assert reaches() == "allowed"


def test_a_name_that_stays_closed_is_said_to_a_person(daemon: Daemon, zone: Zone) -> None:
    zone.names |= {"in.example.com": ["10.0.0.1"], "svc.example.com": ["203.0.113.9"]}
    rules = ("--connect", "gone.example.com:443", "--connect", "in.example.com:443")
    done = launch(daemon, [*rules, "--connect", f"{ALLOWED[4]}:{PORT}"], ACT)
    assert (done.returncode, done.stdout) == (0, "ok\n")
    assert done.stderr.splitlines() == [
        "democrai-launch: stays closed: gone.example.com: no such name",
        "democrai-launch: stays closed: in.example.com: 10.0.0.1 is private",
    ]
    open_name = ["--connect", "svc.example.com:443", "--connect", f"{ALLOWED[4]}:{PORT}"]
    assert launch(daemon, open_name, ACT).stderr == ""


def test_the_status_says_which_names_stay_closed(daemon: Daemon, zone: Zone) -> None:
    zone.names |= {"in.example.com": ["10.0.0.1"], "svc.example.com": ["203.0.113.9"]}
    rules = [NameRule(f"{name}.example.com", 443) for name in ("gone", "in", "svc", "*.below")]
    with resident(daemon.socket, (), rules):
        told = osguard("helper", "status", DEMOCRAI_OS_HELPER_SOCKET=daemon.socket).stdout
    assert [line.strip() for line in told.splitlines() if "closed" in line] == [
        "stays closed: gone.example.com: no such name",
        "stays closed: in.example.com: 10.0.0.1 is private",
    ]


def test_what_becomes_of_a_name_is_told_once_by_an_event(daemon: Daemon, zone: Zone) -> None:
    zone.names["svc.example.com"], zone.ttl = [ALLOWED[4]], 5
    rules = (NameRule("svc.example.com", PORT, None, WITHIN),)
    with resident(daemon.socket, (), rules) as child, Client(daemon.socket) as client:
        events = client.events()
        zone.names["svc.example.com"] = ["10.0.0.1"]
        first = next(events)
        assert isinstance(first, Notice)
        assert (first.sandbox, first.code) == (child.sandbox, "name_failed")
        assert first.text == "svc.example.com: 10.0.0.1 is private"
        time.sleep(7)  # it is looked up again meanwhile, and is what it was
        del zone.names["svc.example.com"]
        second = next(events)
        assert isinstance(second, Notice)
        assert second.text == "svc.example.com: no such name"


def test_a_family_that_fails_is_told_and_stays_open(daemon: Daemon, zone: Zone) -> None:
    zone.names["svc.example.com"], zone.ttl = [ALLOWED[4], ALLOWED[6]], 5
    rules = (NameRule("svc.example.com", PORT, None, WITHIN),)
    with resident(daemon.socket, (), rules) as child, Client(daemon.socket) as client:
        assert child.does("tcp", ALLOWED[6], PORT) == "allowed"
        zone.broken = {28}
        event = next(client.events())
        assert isinstance(event, Notice)
        assert event.text == "svc.example.com: IPv6 addresses: server failure"
        time.sleep(9)  # longer than an address that was not seen again stays by itself
        for family in (4, 6):
            assert child.does("tcp", ALLOWED[family], PORT) == "allowed"


@pytest.mark.parametrize("name", ["svc.example.com", "*.example.com"])
def test_other_name_servers_reach_running_sandboxes(daemon: Daemon, zone: Zone, name: str) -> None:
    zone.names["svc.example.com"], zone.ttl = [ALLOWED[4]], 5
    with resident(daemon.socket, (), (NameRule(name, PORT, None, WITHIN),)) as child:
        assert child.does("udp", ALLOWED[4], 53) == "Operation not permitted"
        assert child.does("udp", SERVER, 53) == "allowed"
        (daemon.folder / "resolv.conf").write_text(f"nameserver {ALLOWED[4]}\n")
        refused = "Operation not permitted"
        assert eventually(lambda: child.does("udp", ALLOWED[4], 53) != refused, 60)
        assert child.does("udp", SERVER, 53) == refused


def test_after_a_restart_names_that_fail_leave_everything_as_it_is(
    daemon: Daemon, zone: Zone
) -> None:
    zone.names["svc.example.com"] = [ALLOWED[4]]
    rules = (NameRule("svc.example.com", PORT, None, WITHIN),)
    one = (Endpoint(parse_network(FORBIDDEN[4]), PORT),)
    with resident(daemon.socket, (), rules) as child:
        assert child.does("tcp", ALLOWED[4], PORT) == "allowed"
        zone.broken = {1, 28}
        daemon.kill()
        daemon.start("--refresh-seconds", "0.5", "--group", "nogroup")
        daemon.wait()
        with Client(daemon.socket) as client:
            assert client.update(Update(child.sandbox, one, rules)).failed_names
            for address in (ALLOWED[4], FORBIDDEN[4]):
                assert child.does("tcp", address, PORT) == "allowed"
            assert child.does("udp", SERVER, 53) == "allowed"
            client.revoke(Revoke(child.sandbox, one, ()))
            assert child.does("tcp", ALLOWED[4], PORT) == "allowed"
            assert child.does("tcp", FORBIDDEN[4], PORT) == "Operation not permitted"
            client.revoke(Revoke(child.sandbox, (), rules))
            assert child.does("tcp", ALLOWED[4], PORT) == "Operation not permitted"


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
