"""A peer may send anything and a host may lack anything: a clear refusal, and the daemon lives."""

from __future__ import annotations

import contextlib
import json
import os
import random
import socket
import subprocess
import sys
from typing import TYPE_CHECKING, Final

import pytest
from root.daemons import Resident, eventually, resident
from root.lab import ALLOWED, FORBIDDEN, PORT

from democrai_osguard_helper import protocol
from democrai_osguard_helper.client import Client, HelperRefused, HelperUnavailable
from democrai_osguard_helper.endpoints import Endpoint, parse_network

if TYPE_CHECKING:
    from collections.abc import Iterator

    from root.daemons import Daemon

pytestmark = pytest.mark.needs("bpf", "iptables", "ipset")
ONE: Final = (Endpoint(parse_network(ALLOWED[4]), PORT),)


def _framed(payload: bytes) -> bytes:
    return len(payload).to_bytes(4, "big") + payload


def _endpoints(count: int) -> bytes:
    endpoint = {"network": "198.18.0.1", "port": 1, "protocol": None}
    document = {
        "call": "confine",
        "subject": {"type": "tool", "name": "x"},
        "session": None,
        "endpoints": [endpoint] * count,
        "names": [],
        "require": "full",
        "refresh": None,
    }
    return json.dumps(document).encode()


def _named(*names: str) -> bytes:
    document = json.loads(_endpoints(0))
    rule: dict[str, object] = {"port": 443, "protocol": None, "within": []}
    document["names"] = [{"name": name, **rule} for name in names]
    return json.dumps(document).encode()


BAD: Final = {
    "no JSON": _framed(b"hello"),
    "cut short": _framed(b'{"call":"li'),
    "an answer": _framed(protocol.dump(protocol.Refused("busy", "x"))),
    "not UTF-8": _framed(b'{"call":"\xff"}'),
    "deep": _framed(b"[" * 100_000),
    "deep object": _framed(b'{"call":' * 50_000),
    "a list": _framed(b"[]"),
    "empty": _framed(b""),
    "oversized": (2**31).to_bytes(4, "big"),
    "just too long": (protocol.MAX_FRAME + 1).to_bytes(4, "big"),
    "unknown call": _framed(b'{"call":"shell"}'),
    "unknown field": _framed(b'{"call":"list","uid":0}'),
    "missing field": _framed(b'{"call":"release"}'),
    "a doubled key": _framed(b'{"call":"list","call":"list"}'),
    "a path": _framed(b'{"call":"release","sandbox":"../../etc"}'),
    "a constant": _framed(b'{"call":NaN}'),
    "too many endpoints": _framed(_endpoints(20_000)),
    "two calls at once, one bad": _framed(b'{"call":"list"}') + _framed(b"x"),
    "a port out of range": _framed(_endpoints(1).replace(b'"port": 1', b'"port": 65536')),
    "a port as text": _framed(_endpoints(1).replace(b'"port": 1', b'"port": "1"')),
    "a true port": _framed(_endpoints(1).replace(b'"port": 1', b'"port": true')),
    "bits beside the prefix": _framed(_endpoints(1).replace(b"198.18.0.1", b"198.18.0.1/8")),
    "a shell in an address": _framed(_endpoints(1).replace(b"198.18.0.1", b"$(id)")),
    "a missing name": _framed(_named("")),
    "a name with a capital": _framed(_named("API.example.com")),
    "a name with a dot at its end": _framed(_named("api.example.com.")),
    "an empty label": _framed(_named("api..example.com")),
    "a label that is too long": _framed(_named(f"{'a' * 64}.example.com")),
    "a name that is too long": _framed(_named(".".join(["a" * 60] * 5))),
    "a name that is not encoded": _framed(_named("bücher.example.com")),
    "a name that is an address": _framed(_named("127.1")),
    "a name that is a number": _framed(_named("example.0x7f")),
    "a star in the middle": _framed(_named("api.*.example.com")),
    "a star before one label": _framed(_named("*.com")),
    "a name with a new line": _framed(_named("api.example.com\nflush")),
    "too many names": _framed(_named(*["api.example.com"] * 257)),
    "names older than a day": _framed(_endpoints(0).replace(b'sh": null', b'sh": 86400')),
    "names asked for all the time": _framed(_endpoints(0).replace(b'sh": null', b'sh": 0')),
    "a new line": _framed(_endpoints(1).replace(b"198.18.0.1", b"1.1.1.1\\nflush")),
}


FAIR: Final = (
    b'{"call":"list"}',
    b'{"call":"status"}',
    b'{"call":"events"}',
    b'{"call":"show","sandbox":"0123456789ab"}',
    b'{"call":"release","sandbox":"0123456789ab"}',
    b'{"call":"update","sandbox":"0123456789ab","endpoints":[],"names":[],"follows":null}',
    b'{"call":"revoke","sandbox":"0123456789ab","endpoints":[],"names":[]}',
)


@pytest.fixture
def running(daemon: Daemon) -> Iterator[Daemon]:
    daemon.start()
    daemon.wait()
    yield daemon
    assert daemon.process is not None
    assert daemon.process.poll() is None
    with resident(daemon.socket, ONE) as child:
        assert child.does("tcp", ALLOWED[4], PORT) == "allowed"
        assert child.does("tcp", FORBIDDEN[4], PORT) == "Operation not permitted"


def _answers(path: str, data: bytes, *, ended: bool = False) -> list[dict[str, object]]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as talk:
        talk.settimeout(30)
        talk.connect(path)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            talk.sendall(data)
        if ended:
            talk.shutdown(socket.SHUT_WR)
        received = b""
        with contextlib.suppress(ConnectionResetError):
            while part := talk.recv(65536):
                received += part
    found = []
    while received:
        size = int.from_bytes(received[:4], "big")
        found.append(json.loads(received[4 : 4 + size]))
        received = received[4 + size :]
    return found


def test_every_bad_message_ends_the_connection_with_a_reason(running: Daemon) -> None:
    for name, data in BAD.items():
        *_, last = _answers(running.socket, data)
        assert last["call"] == "refused", name
        assert last["code"] == "protocol_violation", name
        assert last["text"], name
        # What is wrong is what the row says, not a field that the row forgot.
        assert "missing or unknown" not in str(last["text"]) or "field" in name, last["text"]


def test_the_messages_that_the_bad_ones_are_made_from_are_fair() -> None:
    for payload in (*FAIR, _endpoints(3), _named("api.example.com")):
        protocol.parse_request(payload)


def test_calls_in_the_wrong_order_end_the_connection(running: Daemon) -> None:
    after_events = _framed(b'{"call":"events"}') + _framed(b'{"call":"list"}')
    first, second = _answers(running.socket, after_events)
    assert (first["call"], second["code"]) == ("listening", "protocol_violation")
    early = _framed(b'{"call":"release","sandbox":"0123456789ab"}')
    (answer,) = _answers(running.socket, early, ended=True)
    assert (answer["call"], answer["code"]) == ("refused", "unknown_sandbox")


def test_a_hundred_thousand_endpoints_are_refused_by_their_length(running: Daemon) -> None:
    (answer,) = _answers(running.socket, _framed(_endpoints(100_000)))
    assert answer["code"] == "protocol_violation"


def test_what_is_nearly_right_is_answered_or_ends_the_connection(running: Daemon) -> None:
    """Valid calls with some bytes changed, cut or doubled: the same ones in every run."""
    dice = random.Random(6)  # noqa: S311 - not for secrets
    for _ in range(300):
        message = bytearray(_framed(dice.choice(FAIR)))
        for _ in range(dice.randint(1, 4)):
            place = dice.randrange(4, len(message))
            message[place : place + dice.randint(0, 3)] = dice.randbytes(dice.randint(0, 3))
        # The length in front is true half of the time; a wrong one must not hang the other end.
        if dice.random() < 0.5:
            message[:4] = (len(message) - 4).to_bytes(4, "big")
        for answer in _answers(running.socket, bytes(message), ended=True):
            assert answer["call"] in {"refused", "listed", "report", "listening", "shown"}
    with Client(running.socket) as client:
        assert client.list().sandboxes == ()


def test_frames_that_never_end_take_a_bounded_amount_of_memory(running: Daemon) -> None:
    assert running.process is not None
    before = _resident_kib(running.process.pid)
    part = protocol.MAX_FRAME.to_bytes(4, "big") + b"x" * (protocol.MAX_FRAME - 1)
    talks = []
    for _ in range(100):  # 200 MiB, where the helper keeps 32
        talk = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        talk.settimeout(5)
        talk.connect(running.socket)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError, TimeoutError):
            talk.sendall(part)
        talks.append(talk)
    grown = _resident_kib(running.process.pid) - before
    for talk in talks:
        talk.close()
    assert grown < 100 * 1024


def _resident_kib(pid: int) -> int:
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        return int(file.read().partition("VmRSS:")[2].split()[0])


def test_clients_that_stall_or_die_half_way_delay_nobody(running: Daemon) -> None:
    stalled = []
    for part in (b"", b"\0", _framed(b'{"call":"list"}')[:-1]):
        talk = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        talk.connect(running.socket)
        talk.send(part)
        stalled.append(talk)
    stalled.pop().close()
    with Client(running.socket) as client:
        client.status()
    silent = stalled[0]  # it was there all the time, and may still speak
    silent.settimeout(30)
    silent.sendall(_framed(b'{"call":"list"}'))
    assert silent.recv(4)
    for talk in stalled:
        talk.close()


def test_a_thousand_clients_at_once_are_served_or_turned_away(running: Daemon) -> None:
    assert running.process is not None
    pid = running.process.pid
    clients, codes = [], []
    for _ in range(1000):
        client = Client(running.socket)
        try:
            client.status()
            clients.append(client)
        except (HelperRefused, HelperUnavailable) as error:
            codes.append(getattr(error, "code", "busy"))
            client.close()
    served = len(clients)
    for client in clients:
        client.close()
    assert (served > 100, len(codes) > 500, set(codes)) == (True, True, {"busy"})
    assert eventually(lambda: len(os.listdir(f"/proc/{pid}/fd")) < 100)


def test_a_full_disk_refuses_and_leaves_nothing_half_done(daemon: Daemon) -> None:
    state = daemon.folder / "state"
    state.mkdir()
    script = f'mount -t tmpfs -o size=4k,nr_inodes=4 none {state} && exec "$@"'
    daemon.prefix = ("unshare", "-m", "sh", "-c", script, "sh")
    daemon.start()
    daemon.wait()
    many = tuple(Endpoint(parse_network(f"198.18.1.{i}"), PORT) for i in range(200))
    child = Resident(daemon.socket, many)
    child.end()
    assert child.sandbox.startswith("! confine_failed: ")
    assert "No space left" in child.sandbox
    with Client(daemon.socket) as client:
        assert client.list().sandboxes == ()


@pytest.mark.parametrize("program", ["iptables-restore", "ipset"])
def test_a_missing_program_is_named_and_the_other_layer_holds(daemon: Daemon, program: str) -> None:
    script = (
        f"for f in /usr/sbin/{program} /sbin/{program}; do mount --bind /dev/null $f; done;"
        ' exec "$@"'
    )
    daemon.prefix = ("unshare", "-m", "sh", "-c", script, "sh")
    daemon.start()
    daemon.wait()
    with Client(daemon.socket) as client:
        reasons = {state.layer: state.reason for state in client.status().layers}
    assert reasons == {"bpf": "", "firewall": f"firewall: {program} is not installed"}
    with resident(daemon.socket, ONE) as child:
        assert child.does("tcp", ALLOWED[4], PORT) == "allowed"
        assert child.does("tcp", FORBIDDEN[4], PORT) == "Operation not permitted"


def test_a_kernel_without_bpf_is_named_and_the_other_layer_holds(daemon: Daemon) -> None:
    lost = "-bpf,-perfmon,-sys_admin"
    daemon.prefix = ("setpriv", "--bounding-set", lost, "--inh-caps", lost)
    daemon.start()
    daemon.wait()
    with Client(daemon.socket) as client:
        reasons = {state.layer: state.reason for state in client.status().layers}
    assert reasons == {"bpf": "bpf: map_create: Operation not permitted", "firewall": ""}
    with resident(daemon.socket, ONE) as child:
        assert child.does("tcp", ALLOWED[4], PORT) == "allowed"
        assert child.does("tcp", FORBIDDEN[4], PORT) == "Connection refused"


def test_a_host_without_any_layer_refuses_unless_told_otherwise(daemon: Daemon) -> None:
    script = 'mount --bind /dev/null /usr/sbin/ipset; exec "$@"'
    lost = "-bpf,-perfmon,-sys_admin"
    daemon.prefix = (
        *("unshare", "-m", "sh", "-c", script, "sh"),
        *("setpriv", "--bounding-set", lost, "--inh-caps", lost),
    )
    daemon.start()
    daemon.wait()
    child = Resident(daemon.socket, ONE)
    child.end()
    assert child.sandbox.startswith("! not_enforceable: bpf: map_create")
    with resident(daemon.socket, ONE, require="none") as told:
        assert told.does("tcp", FORBIDDEN[4], PORT) == "allowed"


# Hide every version 2 hierarchy; where that was the only one, show one of version 1 instead.
_VERSION_1: Final = """
awk '/ - cgroup2 /{print $5}' /proc/self/mountinfo | sort -r | while read m; do umount -l "$m"; done
grep -q ' - cgroup ' /proc/self/mountinfo ||
    mount -t cgroup -o none,name=osguard-test none /sys/fs/cgroup
exec "$@"
"""


def test_a_host_with_cgroup_version_1_only_is_refused_in_one_line(daemon: Daemon) -> None:
    hidden = ("unshare", "-m", "sh", "-c", _VERSION_1, "sh")
    module = [sys.executable, "-I", "-m", "democrai_osguard_helper", "--instance", daemon.instance]
    places = ["--socket", daemon.socket, "--state", str(daemon.folder / "state")]
    done = subprocess.run(
        [*hidden, *module, *places], capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 1
    assert done.stderr == "democrai-osguard-helper: no cgroup v2 is mounted on this host\n"
    told = subprocess.run(
        [*hidden, sys.executable, "-I", "-m", "democrai_osguard.cli.main", "status", "--json"],
        capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip
    facts = json.loads(told.stdout)
    assert "v1" in json.dumps(facts)
    assert "hybrid" not in json.dumps(facts)
    daemon.start()  # the control: the same command where version 2 is to be seen
    daemon.wait()
