"""Whom a command talks to: judged here, and then dialled here, on the command's own socket.

The broker takes a copy of the descriptor, reads the address once, judges it, and makes the call
itself: another thread of the caller can change its memory, and changes nothing. What has no address
goes to a peer that was judged before, and is left to the kernel where a register says so.
"""

from __future__ import annotations

import errno
import ipaddress
import os
from time import monotonic

from . import kernel, limits, notification, outgoing, peers
from .brokered import GoOn
from .destinations import Destinations, is_inside, normal
from .dialling import Dialling
from .held_socket import HeldSocket, send_signal, taken
from .name_answers import NameAnswers, name_servers
from .network_acts import DNS, question
from .seccomp import ADDRESS_CALLS
from .socket_paths import OpenPath

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    import socket
    from collections.abc import Callable, Iterator

    from .broker import Broker
    from .caller import Call
    from .outgoing import Message
    from .plan import Plan

    Peer = peers.Internet | peers.Path | peers.Netlink | peers.Nobody
    Act = Callable[[], int]
else:
    import _signal as signal
    import _socket as socket

MAX_POSTPONED = 400
MAX_ASKED = 256  # names that the command asked about and that are remembered
NAME_PATIENCE = 10.0  # seconds that a call waits for names to be looked up
_SERVERS_FRESH = 5.0
_LONGEST_QUESTION = 514  # a datagram's, and two bytes of length where it is a stream
_LONGEST_NAME = 253
_NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-_.")
_NETWORK = (peers.AF_INET, peers.AF_INET6)


class Connections:
    """The part of the broker that answers calls with an address."""

    def __init__(self, plan: Plan, broker: Broker, *, curious: bool = False) -> None:
        self._broker = broker
        # Where the helper holds addresses it goes on holding them: the socket is in its cgroup.
        self._places = None if plan.by_address else Destinations(plan.endpoints)
        self._curious = curious  # about every name, to be able to speak of it
        self._dialling = Dialling(broker)
        self._names = NameAnswers()
        self._asked: dict[str, None] = {}
        self._postponed: dict[int, tuple[str, Call, float]] = {}
        self._servers: tuple[frozenset[bytes], float] | None = None
        if self._places is not None:
            self._names.ask(self._places.names())

    @property
    def descriptors(self) -> tuple[int, ...]:
        """Return what to wait for."""
        return self._dialling.file, self._names.file

    @property
    def patience(self) -> float | None:
        """Return after how many seconds to look again."""
        own = 0.2 if self._postponed else None
        return min(filter(None, (own, self._dialling.patience)), default=None)

    def tend(self) -> None:
        """Go on with what has become possible."""
        if self._names.take() or self._postponed:
            self._resume()
        self._dialling.tend()

    def postpones(self, name: str, call: Call) -> bool:
        """Tell whether the call must wait until names were looked up; it is then resumed here."""
        if self._places is None or name not in ADDRESS_CALLS:
            return False
        if not self._places.has_names and not self._curious:
            return False
        if not any(self._awaits_names(peer) for peer in _peers_of(name, call)):
            return False
        _, _, until = self._postponed.get(call.id, (name, call, monotonic() + NAME_PATIENCE))
        if monotonic() >= until or len(self._postponed) >= MAX_POSTPONED:
            return False
        self._postponed[call.id] = name, call, until
        return True

    def lacks(self, name: str, call: Call) -> Iterator[tuple[str, str]]:
        """Yield which operation on which target no rule allows."""
        for peer in _peers_of(name, call) if name in ADDRESS_CALLS else ():
            if isinstance(peer, peers.Internet) and not self._allows(peer):
                yield "connect", self._target(peer)
            if isinstance(peer, peers.Path):
                yield from self._lacks_path(call, peer)

    def connect(self, call: Call) -> int | None:
        """Connect the caller's socket, once the address is judged."""
        raw = outgoing.address_at(call, call.arguments[1], call.integer(2))
        held = HeldSocket(call, call.integer(0))
        address = self._checked(call, held, lambda: self._address(call, held, peers.read(raw)))

        def act() -> int:
            kernel.connect_socket(held.descriptor, address)
            return 0

        late = errno.EINPROGRESS if held.family in _NETWORK else errno.EAGAIN
        try_once = (lambda: held.at_once(act)) if held.connects else act
        return self._dialling.begin(call, held, try_once, waits=held.waits, late=late)

    def listen(self, call: Call) -> int:
        """Let a unix socket listen, and no other."""
        held = HeldSocket(call, call.integer(0))
        try:
            if held.family != peers.AF_UNIX:
                raise _refusal(errno.EACCES)
            self._broker.umask_of(call)
            held.listen(call.integer(1))
        finally:
            held.close()
        return 0

    def sendto(self, call: Call) -> int | None:
        """Send one message to an address; without one the kernel sends to a judged peer."""
        if not call.arguments[4]:
            self.overhear(call)
            raise GoOn  # the register says that there is no address, and stays as it is
        return self._send(call, outgoing.sent_to(call), call.arguments[3])

    def sendmsg(self, call: Call) -> int | None:
        """Send one message, whether it has an address or not: memory could say otherwise later."""
        return self._send(call, outgoing.message_at(call, call.arguments[1]), call.arguments[2])

    def sendmmsg(self, call: Call) -> int | None:
        """Send several messages; the first may wait, the others go with it or do not."""
        count = min(call.arguments[2] & 0xFFFFFFFF, outgoing.MAX_MESSAGES)
        places = [call.arguments[1] + each * outgoing.MANY_SIZE for each in range(count)]
        if not places:
            return 0
        flags = call.arguments[3]
        held, act = self._prepared(call, outgoing.message_at(call, places[0]), flags)

        def first() -> int:
            self._count(call, places[0], act())
            return 1

        done = self._dialling.begin(call, held, first, waits=_waits(held, flags), late=errno.EAGAIN)
        return None if done is None else done + self._send_more(call, places[1:], flags)

    def _send_more(self, call: Call, places: list[int], flags: int) -> int:
        for done, place in enumerate(places):
            try:
                held, act = self._prepared(call, outgoing.message_at(call, place), flags)
                try:
                    self._count(call, place, act())
                finally:
                    held.close()
            except OSError:
                return done
        return len(places)

    def _count(self, call: Call, place: int, size: int) -> None:
        """Tell the caller how much of a message was taken."""
        there = place + outgoing.LENGTH_PLACE
        call.store(there, size.to_bytes(4, "little"), lambda: self._broker.umask_of(call))

    def _send(self, call: Call, message: Message, flags: int) -> int | None:
        held, act = self._prepared(call, message, flags)
        waits = _waits(held, flags)
        return self._dialling.begin(call, held, act, waits=waits, late=errno.EAGAIN)

    def _prepared(self, call: Call, message: Message, flags: int) -> tuple[HeldSocket, Act]:
        """Return the socket, and what sends the message on it once it was judged."""
        own_flags = outgoing.flags_of(flags)
        held = HeldSocket(call, call.integer(0))
        address = self._checked(call, held, lambda: self._destination(call, held, message))
        held.content, control = len(message.content), held.control

        def send() -> int:
            return kernel.send_message(
                held.descriptor, message.content, own_flags, address, control
            )

        def act() -> int:
            try:
                return send() if held.limit is None else limits.within("files", held.limit, send)
            except BrokenPipeError:
                if held.type == socket.SOCK_STREAM and not flags & outgoing.NOSIGNAL:
                    send_signal(call, signal.SIGPIPE, lambda: self._still_waits(call))
                raise

        return held, act

    def _still_waits(self, call: Call) -> bool:
        return notification.is_waiting(self._broker.listener, call)

    def _checked(self, call: Call, held: HeldSocket, judge: Callable[[], bytes]) -> bytes:
        """Return the address that was judged, for a caller that still waits."""
        try:
            address = judge()
            self._broker.umask_of(call)
        except BaseException:
            held.close()
            raise
        return address

    def _destination(self, call: Call, held: HeldSocket, message: Message) -> bytes:
        if not message.is_whole and held.type != socket.SOCK_STREAM:
            raise _refusal(errno.EMSGSIZE)
        copies = outgoing.Control(held, message.control, lambda number: taken(call, number))
        held.keep(copies)
        held.control = copies.raw
        if copies.has_descriptors:
            held.limit = limits.limit_of(call.thread, "files")
        self._hear(held, message)
        if not message.address or (held.connects and held.family in _NETWORK):
            return b""  # a stream goes where it is connected to, whatever it says
        if held.connects:
            raise _refusal(errno.EISCONN)
        peer = peers.read(message.address)
        if isinstance(peer, peers.Nobody):
            raise _refusal(errno.EAFNOSUPPORT)  # to IPv4 it would be an address like any other
        return self._address(call, held, peer)

    def _address(self, call: Call, held: HeldSocket, peer: Peer) -> bytes:
        """Return the bytes to dial; raise OSError for a peer that no rule allows."""
        if isinstance(peer, peers.Nobody):
            return peer.raw
        if held.family not in _FAMILIES[type(peer)]:
            raise _refusal(errno.EAFNOSUPPORT)
        if self._broker.narrowing.concerns(call.thread):
            raise _refusal(errno.EACCES)
        if isinstance(peer, peers.Path):
            path = OpenPath(call, peer.path)
            held.keep(path)
            path.judge(self._broker)
            return path.raw
        if isinstance(peer, peers.Internet) and not self._allows(peer):
            raise _refusal(errno.EACCES)
        return peer.raw

    def _allows(self, peer: peers.Internet) -> bool:
        places = self._places
        if places is None or places.allows(peer.address, peer.port):
            return True
        if places.has_names and self._is_name_server(peer.address, peer.port):
            return True
        return self._allows_by_name(peer) or self._broker.allows("connect", self._target(peer))

    def _allows_by_name(self, peer: peers.Internet) -> bool:
        if self._places is None or is_inside(peer.address):
            return False
        names = self._names.names_of(peer.address)
        return any(self._places.allows_name(name, peer.port) for name in names)

    def _awaits_names(self, peer: Peer) -> bool:
        """Tell whether a name that is being looked up could still explain the peer."""
        if self._places is None or not isinstance(peer, peers.Internet):
            return False
        if self._places.allows(peer.address, peer.port) or self._allows_by_name(peer):
            return False
        if is_inside(peer.address) and not self._curious:
            return False
        if self._is_name_server(peer.address, peer.port):
            return False
        declared = () if is_inside(peer.address) else self._places.names(peer.port)
        under_way = self._names.ask(declared)
        return under_way or self._names.is_under_way(self._asked)

    def _target(self, peer: peers.Internet) -> str:
        """Say whom a peer is, by the name that was looked up if there is one."""
        text = str(ipaddress.ip_address(peer.address))
        name = self.name_of(text)
        if name and not is_inside(peer.address):
            return f"{name}:{peer.port}"
        return f"[{text}]:{peer.port}" if ":" in text else f"{text}:{peer.port}"

    def name_of(self, address: str) -> str | None:
        """Return the name that the command asked for last of those that mean the address."""
        known = self._names.names_of(ipaddress.ip_address(address).packed)
        return next((name for name in reversed(list(known)) if name in self._asked), None)

    def _lacks_path(self, call: Call, peer: peers.Path) -> Iterator[tuple[str, str]]:
        try:
            path = OpenPath(call, peer.path)
        except OSError:
            return
        right = not path.fault()
        path.close()
        if right and not self._broker.allows("modify", path.path):
            yield "modify", path.path

    def _is_name_server(self, address: bytes, port: int) -> bool:
        if port != DNS:
            return False
        now = monotonic()
        if self._servers is None or now - self._servers[1] > _SERVERS_FRESH:
            self._servers = name_servers(), now
        return address in self._servers[0]

    def overhear(self, call: Call) -> None:
        """Look at what a connected socket sends, if that could be a question for a name."""
        if not self._listens_in() or call.arguments[2] > _LONGEST_QUESTION:
            return
        held = HeldSocket(call, call.integer(0))
        try:
            self._hear(held, outgoing.sent_to(call))
        finally:
            held.close()

    def _hear(self, held: HeldSocket, message: Message) -> None:
        """Learn which name the command asks a name server for: what it means is asked again."""
        if not self._listens_in() or len(message.content) > _LONGEST_QUESTION:
            return
        name = _asked_name(held, message.content)
        if name is None or not self._goes_to_a_server(held, message):
            return
        places = self._places
        wanted = self._curious or (places is not None and places.allows_name(name))
        if wanted and self._names.has_room():
            self._asked.pop(name, None)
            self._asked[name] = None
            while len(self._asked) > MAX_ASKED:
                del self._asked[next(iter(self._asked))]
            self._names.ask([name])

    def _listens_in(self) -> bool:
        return self._places is not None and (self._places.has_suffixes or self._curious)

    def _goes_to_a_server(self, held: HeldSocket, message: Message) -> bool:
        """Tell whether this host's own name servers are asked: the broker asks nobody else."""
        if held.family not in _NETWORK:
            return False
        if message.address and not held.connects:
            peer = peers.read(message.address)
            if not isinstance(peer, peers.Internet) or not self._allows(peer):
                return False
            return self._is_name_server(peer.address, peer.port)
        place = held.peer()
        return place is not None and self._is_name_server(*place)

    def _resume(self) -> None:
        for identity, (name, call, until) in tuple(self._postponed.items()):
            if not notification.is_waiting(self._broker.listener, call):
                del self._postponed[identity]
            elif monotonic() >= until or not self.postpones(name, call):
                del self._postponed[identity]
                self._broker.settle_by_name(name, call)


def _peers_of(name: str, call: Call) -> list[Peer]:
    """Return whom a call names; nobody where it cannot be read: it will fail by itself."""
    try:
        return [peers.read(raw) for raw in _ADDRESSES[name](call) if raw]
    except OSError:
        return []


def _addresses_of_many(call: Call) -> list[bytes]:
    count = min(call.arguments[2] & 0xFFFFFFFF, outgoing.MAX_MESSAGES)
    places = (call.arguments[1] + each * outgoing.MANY_SIZE for each in range(count))
    return [outgoing.message_at(call, place).address for place in places]


_ADDRESSES: dict[str, Callable[[Call], list[bytes]]] = {
    "connect": lambda c: [outgoing.address_at(c, c.arguments[1], c.integer(2))],
    "sendto": lambda c: (
        [outgoing.address_at(c, c.arguments[4], c.integer(5))] if c.arguments[4] else []
    ),
    "sendmsg": lambda c: [outgoing.message_at(c, c.arguments[1]).address],
    "sendmmsg": _addresses_of_many,
}
_FAMILIES: dict[type, tuple[int, ...]] = {
    peers.Internet: _NETWORK,
    peers.Path: (peers.AF_UNIX,),
    peers.Netlink: (peers.AF_NETLINK,),
}


def _asked_name(held: HeldSocket, content: bytes) -> str | None:
    asked = question(content[2:] if held.connects else content)
    if asked is None or len(asked) > _LONGEST_NAME or not _NAME_CHARACTERS.issuperset(asked):
        return None
    return normal(asked)


def _waits(held: HeldSocket, flags: int) -> bool:
    return held.waits and not flags & outgoing.DONTWAIT


def _refusal(code: int) -> OSError:
    return OSError(code, os.strerror(code))
