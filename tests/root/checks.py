"""What must hold in a box, as checks that return complaints: used by the tests, and by the
mutation tests, which leave something out and want to hear at least one.
"""  # noqa: D205
# ruff: noqa: D401 - a check is described by what must hold

from __future__ import annotations

import os
import select
import socket
import subprocess
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from root import attempts
from root.lab import ALLOWED, FORBIDDEN, OTHER_PORT, PATIENCE, PORT, unshare_network, verdict

from democrai_osguard_helper.endpoints import Endpoint, parse_network

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from democrai_osguard_helper.cgroups import Box, Tree
    from democrai_osguard_helper.layers import Layer

MODES: Final = ("bpf", "firewall", "both")
POLICY: Final = tuple(Endpoint(parse_network(ALLOWED[v]), PORT) for v in (4, 6))
_SPOKE: Final = {"crashed", ""}


@dataclass(frozen=True)
class Held:
    """A box, and the layers that hold it."""

    mode: str
    tree: Tree
    box: Box
    layers: tuple[Layer, ...]

    @property
    def has_programs(self) -> bool:
        return self.mode != "firewall"

    def apply(self, policy: Sequence[Endpoint]) -> None:
        for layer in self.layers:
            layer.apply(self.box, policy)


@dataclass(frozen=True)
class Row:
    """A way out; `reaches` says whether it gets to an allowed address."""

    name: str
    attempt: Callable[..., bytes]
    version: int = 4
    reaches: dict[str, bool] = field(default_factory=lambda: dict.fromkeys(MODES, True))


_NEVER: Final = dict.fromkeys(MODES, False)
_WHERE_NO_PROGRAM: Final = {"bpf": False, "firewall": True, "both": False}
ROWS: Final = (
    Row("tcp4", attempts.tcp),
    Row("tcp6", attempts.tcp, 6),
    Row("tcp mapped", attempts.tcp_mapped),
    Row("fast open", attempts.fast_open),
    Row("fast open 6", attempts.fast_open, 6),
    Row("udp4", attempts.udp),
    Row("udp6", attempts.udp, 6),
    Row("udp mapped", attempts.udp_mapped),
    Row("udp4 connected", attempts.udp_connected),
    Row("udp6 connected", attempts.udp_connected, 6),
    Row("udp mapped connected", attempts.udp_mapped_connected),
    Row("io_uring", attempts.io_uring),
    Row("io_uring 6", attempts.io_uring, 6),
    Row("io_uring udp", attempts.io_uring_udp),
    Row("io_uring udp6", attempts.io_uring_udp, 6),
    Row("mptcp", attempts.mptcp, 4, _WHERE_NO_PROGRAM),
    Row("mptcp6", attempts.mptcp, 6, _WHERE_NO_PROGRAM),
    Row("mptcp mapped", attempts.mptcp_mapped, 4, _WHERE_NO_PROGRAM),
    Row("icmp", attempts.icmp_raw, 4, _NEVER),
    Row("icmp6", attempts.icmp_raw, 6, _NEVER),
    Row("ping", attempts.ping, 4, _NEVER),
    Row("ping6", attempts.ping, 6, _NEVER),
    Row("raw udp", attempts.raw_udp, 4, _WHERE_NO_PROGRAM),
    Row("raw udp6", attempts.raw_udp, 6, _WHERE_NO_PROGRAM),
    Row("ip options", attempts.ip_options, 4, _WHERE_NO_PROGRAM),
)


def _expect(name: str, said: str, wanted: str) -> list[str]:
    """Compare; `refused` stands for every answer that is not `allowed`, but not for silence."""
    refused = said not in {"allowed", *_SPOKE}
    fine = refused if wanted == "refused" else said == wanted
    return [] if fine else [f"{name}: {said!r} where {wanted!r} was expected"]


def every_way_out(held: Held) -> list[str]:
    """Each way reaches what is allowed and nothing else; the control reaches everything."""
    wrong = []
    for row in ROWS:
        forbidden = row.attempt, FORBIDDEN[row.version]
        allowed = row.attempt, ALLOWED[row.version]
        wrong += _expect(f"{row.name}, control", _try(None, *forbidden), "allowed")
        reach = "allowed" if row.reaches[held.mode] else "refused"
        wrong += _expect(f"{row.name}, allowed", _try(held.box, *allowed), reach)
        wrong += _expect(f"{row.name}, forbidden", _try(held.box, *forbidden), "refused")
    return wrong


def _try(box: Box | None, attempt: Callable[..., bytes], address: str, port: int = PORT) -> str:
    return verdict(box, lambda: attempt(address, port))


def only_that_port(held: Held) -> list[str]:
    """An allowed address is allowed on its port; without a port on every port."""
    everywhere = [Endpoint(parse_network(ALLOWED[v])) for v in (4, 6)]
    wrong = []
    for version, attempt in (
        (4, attempts.tcp),
        (6, attempts.tcp),
        (4, attempts.udp),
        (6, attempts.udp),
    ):
        name = f"{attempt.__name__}{version}"
        place = ALLOWED[version], OTHER_PORT
        wrong += _expect(f"{name}, control", _try(None, attempt, *place), "allowed")
        wrong += _expect(f"{name}, other port", _try(held.box, attempt, *place), "refused")
        held.apply(everywhere)
        wrong += _expect(f"{name}, every port", _try(held.box, attempt, *place), "allowed")
        other = FORBIDDEN[version], OTHER_PORT
        wrong += _expect(f"{name}, elsewhere", _try(held.box, attempt, *other), "refused")
        held.apply(POLICY)
    return wrong


def only_that_protocol(held: Held) -> list[str]:
    """A rule for one protocol does not open the other."""
    wrong = []
    for word, other in (("tcp", attempts.udp), ("udp", attempts.tcp)):
        for port in (PORT, None):
            held.apply([Endpoint(parse_network(ALLOWED[4]), port, word)])
            own = getattr(attempts, word)
            wrong += _expect(f"{word} {port}", _try(held.box, own, ALLOWED[4]), "allowed")
            wrong += _expect(f"not {word} {port}", _try(held.box, other, ALLOWED[4]), "refused")
    held.apply(POLICY)
    return wrong


def everything_means_everything(held: Held) -> list[str]:
    """A rule for all of one family opens nothing of the other."""
    held.apply([Endpoint(parse_network("::/0"))])
    wrong = _expect("::/0", _try(held.box, attempts.tcp, FORBIDDEN[6]), "allowed")
    wrong += _expect("not 4", _try(held.box, attempts.tcp, FORBIDDEN[4]), "refused")
    wrong += _expect("not mapped", _try(held.box, attempts.tcp_mapped, FORBIDDEN[4]), "refused")
    held.apply([Endpoint(parse_network("0.0.0.0/0"))])
    wrong += _expect("0/0", _try(held.box, attempts.tcp, FORBIDDEN[4]), "allowed")
    wrong += _expect("mapped", _try(held.box, attempts.tcp_mapped, FORBIDDEN[4]), "allowed")
    wrong += _expect("not 6", _try(held.box, attempts.tcp, FORBIDDEN[6]), "refused")
    held.apply(POLICY)
    return wrong


def refused_at_once(held: Held) -> list[str]:
    """A refused connect is answered, not left to time out."""
    error = "EPERM" if held.has_programs else "ECONNREFUSED"
    return [
        complaint
        for version in (4, 6)
        for complaint in _expect(
            f"tcp{version}", _try(held.box, attempts.tcp, FORBIDDEN[version]), error
        )
    ]


def refused_without_a_route(held: Held) -> list[str]:
    """The programs refuse and count what could not be sent anyway, so that it can be asked for."""
    if not held.has_programs:
        return []
    places = {"203.0.113.9": 4, "2001:db8::9": 6}
    wrong = []
    for place in places:
        for attempt in (attempts.tcp, attempts.udp):
            name = f"{attempt.__name__} {place}"
            wrong += _expect(f"{name}, control", _try(None, attempt, place), "ENETUNREACH")
            wrong += _expect(name, _try(held.box, attempt, place), "EPERM")
    programs = held.layers[-1]
    counted = {
        (a.address, a.protocol) for a in dict(programs.attempts([held.box])).get(held.box.name, ())
    }
    missing = {(place, word) for place in places for word in ("tcp", "udp")} - counted
    return wrong + [f"not counted: {item}" for item in sorted(missing)]


def cut_when_taken_away(held: Held) -> list[str]:
    """A connection that stands is of no use once its rule is gone; before that it is."""
    wrong = []
    for version in (4, 6):
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
            said = _talk_across_a_change(held, version, kind)
            wrong += _expect(f"{kind.name}{version}, before", said[0], "allowed")
            wrong += _expect(f"{kind.name}{version}, after", said[1], _cut(held, kind))
    return wrong


def _cut(held: Held, kind: socket.SocketKind) -> str:
    # A rule resets a connection; a program lets its packets vanish.
    return "ECONNRESET" if kind is socket.SOCK_STREAM and held.mode != "bpf" else "refused"


def _talk_across_a_change(held: Held, version: int, kind: socket.SocketKind) -> tuple[str, str]:
    first, resume = os.pipe(), os.pipe()

    def action() -> bytes:
        family = socket.AF_INET if version == 4 else socket.AF_INET6
        talk = socket.socket(family, kind)
        talk.settimeout(PATIENCE)
        talk.connect((ALLOWED[version], PORT))
        talk.send(b"hello")
        os.write(first[1], talk.recv(64))
        os.close(first[1])
        os.read(resume[0], 1)
        talk.send(b"hello")
        return talk.recv(64)

    result: list[str] = []
    runner = threading.Thread(target=lambda: result.append(verdict(held.box, action)))
    runner.start()
    ready, _, _ = select.select([first[0]], [], [], 2 * PATIENCE)
    before = os.read(first[0], 64) if ready else b""
    held.apply(())
    os.write(resume[1], b"x")
    runner.join()
    held.apply(POLICY)
    for descriptor in (*first, *resume):
        os.close(descriptor)
    return ("allowed" if before == b"ok" else "silent"), result[0]


def loopback_is_an_address(held: Held) -> list[str]:
    """Loopback is closed, but for what the box itself listens on, where programs can tell."""
    wrong = []
    for place in ("127.0.0.1", "::1"):
        wrong += _expect(f"{place}, control", _try(None, attempts.tcp, place), "allowed")
        wrong += _expect(place, _try(held.box, attempts.tcp, place), "refused")
        wrong += _expect(f"{place} udp", _try(held.box, attempts.udp, place), "refused")
        own = "allowed" if held.has_programs else "refused"
        wrong += _expect(f"{place} own", verdict(held.box, lambda p=place: _own(p)), own)  # type: ignore[misc]
        shut = verdict(held.box, lambda p=place: _own_no_more(p))  # type: ignore[misc]
        wrong += _expect(f"{place} no more", shut, "refused")
    return wrong


def _listen(place: str) -> socket.socket:
    family = socket.AF_INET6 if ":" in place else socket.AF_INET
    return socket.create_server((place, 0), family=family)


def _own(place: str) -> bytes:
    """Connect to oneself; the listener may close, the connection stays."""
    with _listen(place) as listener:
        one = socket.create_connection(listener.getsockname()[:2], timeout=PATIENCE)
        other, _ = listener.accept()
    other.settimeout(PATIENCE)
    one.send(b"hello")
    other.recv(64)
    other.send(b"ok")
    return one.recv(64)


def _own_no_more(place: str) -> bytes:
    """Listen, stop listening without closing, let a stranger take the port, and knock."""
    with _listen(place) as listener:
        port = listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
        return attempts.tcp(place, port)


def a_box_below(held: Held) -> list[str]:
    """What is below a box is inside it."""
    below = held.tree.box(f"{held.box.name}/below")
    os.mkdir(below.path)
    try:
        return [
            complaint
            for version in (4, 6)
            for attempt in (attempts.tcp, attempts.udp, attempts.io_uring)
            for place, wanted in ((ALLOWED, "allowed"), (FORBIDDEN, "refused"))
            for complaint in _expect(
                f"{attempt.__name__}{version} below", _try(below, attempt, place[version]), wanted
            )
        ]
    finally:
        below.remove()


def a_box_that_nobody_prepared(held: Held) -> list[str]:
    """The firewall refuses what is in the instance's folder and in no box that it knows."""
    if held.has_programs:
        return []
    stray = held.tree.new_box()
    try:
        return [
            complaint
            for version in (4, 6)
            for attempt in (attempts.tcp, attempts.udp)
            for complaint in _expect("stray", _try(stray, attempt, ALLOWED[version]), "refused")
        ]
    finally:
        stray.remove()


def another_namespace(held: Held) -> list[str]:
    """Programs hold in every network namespace, rules only in the one that they are in."""
    wrong = []
    for place in ("127.0.0.1", "::1"):
        for attempt in (attempts.tcp, attempts.udp):
            name = f"{attempt.__name__} {place} in another namespace"
            control = verdict(None, lambda a=attempt, p=place: a(p), _elsewhere)  # type: ignore[misc]
            said = verdict(held.box, lambda a=attempt, p=place: a(p), _elsewhere)  # type: ignore[misc]
            wrong += _expect(f"{name}, control", control, "allowed")
            wrong += _expect(name, said, "refused" if held.has_programs else "allowed")
    return wrong


def _elsewhere() -> None:
    """Enter a network namespace with listeners of its own."""
    unshare_network()
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    for family, place in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
        stream = socket.create_server((place, PORT), family=family)
        threading.Thread(target=lambda s=stream: s.accept()[0].send(b"ok"), daemon=True).start()
        ear = socket.socket(family, socket.SOCK_DGRAM)
        ear.bind((place, PORT))
        threading.Thread(
            target=lambda e=ear: e.sendto(b"ok", e.recvfrom(64)[1]), daemon=True
        ).start()


_KINDS: Final = tuple(
    (family, kind, 4 if family is socket.AF_INET else 6)
    for family in (socket.AF_INET, socket.AF_INET6)
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM)
)


def a_socket_from_before(held: Held) -> list[str]:
    """A limit, stated: a socket belongs to the cgroup in which it was made, whoever uses it."""
    wrong = []
    for family, kind, version in _KINDS:
        with socket.socket(family, kind) as made:
            number, place = made.fileno(), FORBIDDEN[version]
            said = verdict(held.box, lambda n=number, p=place: _use(n, p))  # type: ignore[misc]
            wrong += _expect(f"{kind.name}{version} inherited", said, "allowed")
    return wrong


def a_socket_handed_over(held: Held) -> list[str]:
    """The same limit from the other side: what is made inside stays held outside."""
    wrong = []
    for family, kind, version in _KINDS:
        ours, theirs = socket.socketpair()
        name, place = f"{kind.name}{version}", FORBIDDEN[version]

        def hand_out(family: int = family, kind: int = kind, end: socket.socket = theirs) -> bytes:
            with socket.socket(family, kind) as made:
                socket.send_fds(end, [b"x"], [made.fileno()])
            return b"ok"

        def hand_in(place: str = place, end: socket.socket = theirs) -> bytes:
            _, (descriptor,), _, _ = socket.recv_fds(end, 1, 1)
            return _use(descriptor, place)

        with ours, theirs:
            wrong += _expect(f"{name} made inside", verdict(held.box, hand_out), "allowed")
            _, (given,), _, _ = socket.recv_fds(ours, 1, 1)
            outside = verdict(None, lambda g=given, p=place: _use(g, p))  # type: ignore[misc]
            wrong += _expect(f"{name} made inside, used outside", outside, "refused")
            os.close(given)
            with socket.socket(family, kind) as made:
                socket.send_fds(ours, [b"x"], [made.fileno()])
            wrong += _expect(f"{name} made outside", verdict(held.box, hand_in), "allowed")
    return wrong


def _use(descriptor: int, place: str) -> bytes:
    with socket.socket(fileno=os.dup(descriptor)) as talk:
        talk.settimeout(PATIENCE)
        talk.connect((place, PORT))
        talk.send(b"hello")
        return talk.recv(64)


def the_same_path_again(held: Held) -> list[str]:
    """A folder made again under an old name is another cgroup, and a stranger to the layers.

    The rules refuse it, for it is in the instance's folder and in no box that they know. The
    programs went with the old one; only root can make it, and the daemon notices.
    """
    old, spare = held.box.identity(), held.tree.new_box()
    first = spare.identity()
    for layer in held.layers:
        layer.prepare(spare)
        layer.apply(spare, POLICY)
    wrong = _expect("before", _try(spare, attempts.tcp, ALLOWED[4]), "allowed")
    spare.remove()
    os.mkdir(spare.path)
    same = spare.identity() in {first, old}
    reach = "allowed" if held.mode == "bpf" else "refused"
    for version in (4, 6):
        for attempt in (attempts.tcp, attempts.udp):
            name = f"{attempt.__name__}{version} made again"
            wrong += _expect(name, _try(spare, attempt, ALLOWED[version]), reach)
    for layer in held.layers:
        layer.drop([spare])
    spare.remove()
    return wrong + (["a new cgroup has the number of an old one"] if same else [])


CHECKS: Final = (
    every_way_out,
    only_that_port,
    only_that_protocol,
    everything_means_everything,
    refused_at_once,
    refused_without_a_route,
    cut_when_taken_away,
    loopback_is_an_address,
    a_box_below,
    a_box_that_nobody_prepared,
    another_namespace,
    a_socket_from_before,
    a_socket_handed_over,
    the_same_path_again,
)
