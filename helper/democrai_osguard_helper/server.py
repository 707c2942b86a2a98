"""The socket: takes connections, reads frames with limits, hangs up on whatever is out of order.

A slow, silent, talkative or dying client costs a bounded amount and delays nobody.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING, Final

from . import crowd, protocol
from .desk import CALLS, Desk, Then
from .loop import READ, WRITE, Loop
from .peers import Peer, PeerRefused, identify, name_senders, receive
from .protocol import Notice, ProtocolViolation, Refused

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

FRAME_SECONDS: Final = 10.0  # from the first byte of a frame to its last
IDLE_SECONDS: Final = 60.0
MAX_QUEUED: Final = 256 * 1024  # bytes that wait for one listener of events
MAX_BACKLOG: Final = 256  # events of one user that nobody has heard yet
MAX_UNHEARD: Final = 64  # users of whom some are kept
_CHUNK: Final = crowd.SMALL


class Connection:
    """One client, from its first byte to the end."""

    def __init__(self, server: Server, stream: socket.socket, peer: Peer) -> None:
        self.peer = peer
        self.is_listening = False
        self._server = server
        self._stream = stream
        self._incoming = bytearray()
        self._from_others = False  # whether somebody else sent a part of it
        self._outgoing = bytearray()
        self._lost = 0
        self._busy = False
        self._ending = False
        self._since = server.loop.now()
        server.loop.watch(stream.fileno(), READ, self._ready)

    @property
    def buffered(self) -> int:
        """Return how many bytes are held for the client."""
        return len(self._incoming)

    def is_late(self, now: float) -> bool:
        """Tell whether the client kept us waiting for too long."""
        if self.is_listening or self._busy:
            return False
        return now - self._since > (FRAME_SECONDS if self._incoming else IDLE_SECONDS)

    def may_hear(self, owner: int | None) -> bool:
        """Tell whether the client listens to events of this user; hang up if it may no more."""
        if not self.is_listening or not _may_hear(self.peer.uid, owner):
            return False
        try:
            self.peer.check()  # it may have been confined since it began to listen
        except PeerRefused:
            self.close()
            return False
        return True

    def send(self, reply: protocol.Reply) -> None:
        """Queue a message; a listener that does not read loses events, and is told how many."""
        if self.is_listening and len(self._outgoing) > MAX_QUEUED:
            self._lost += 1
            return
        if self._lost:
            lost, self._lost = self._lost, 0
            notice = Notice(None, "events_lost", f"{lost} events were not read in time")
            self._outgoing += protocol.frame(notice)
        self._outgoing += _framed(reply)
        self._flush()

    def close(self) -> None:
        """Hang up; once is enough."""
        if self._stream.fileno() < 0:
            return
        self._server.forget(self)
        self._server.loop.forget(self._stream.fileno())
        self._stream.close()
        if not self._busy:  # else whoever answers still needs to know the peer
            self.peer.close()

    def _ready(self, events: int) -> None:
        if events & WRITE:
            self._flush()
            self._go_on()
        if events & READ and self._stream.fileno() >= 0:
            self._read()

    def _read(self) -> None:
        try:
            data, is_peer = receive(self._stream, _CHUNK, self.peer)
        except BlockingIOError:
            return
        except PeerRefused as error:
            self._end_with(Refused(error.code, str(error)[:400]))
            return
        except OSError:
            data, is_peer = b"", False
        if not data or self.is_listening:  # a listener has nothing more to say
            self.close()
            return
        if not self._incoming:
            self._since = self._server.loop.now()
        self._incoming += data
        self._from_others |= not is_peer
        self._go_on()

    def _go_on(self) -> None:
        """Answer what has arrived, unless the client has yet to read an answer."""
        try:
            if self._incoming and self._stream.fileno() >= 0:
                self._frames()
        except ProtocolViolation as error:
            self._end_with(Refused("protocol_violation", str(error)[:400]))
        except PeerRefused as error:
            self._end_with(Refused(error.code, str(error)[:400]))

    def _frames(self) -> None:
        if not self._server.may_wait(self):
            self._end_with(Refused("busy", "too much is waiting to be read: try again later"))
            return
        while len(self._incoming) >= protocol.HEADER and not self._outgoing:
            if self._busy:
                raise ProtocolViolation("a second call before the first was answered")
            if self.is_listening:
                raise ProtocolViolation("a call after `events`")
            size = protocol.frame_length(bytes(self._incoming[: protocol.HEADER]))
            end = protocol.HEADER + size
            if len(self._incoming) < end:
                return
            payload = bytes(self._incoming[protocol.HEADER : end])
            del self._incoming[:end]
            request = protocol.parse_request(payload)
            if CALLS[type(request)].by_peer_alone and self._from_others:
                self.peer.check()
                raise PeerRefused("not_the_opener", "only who opened a connection has itself moved")
            self._from_others = self._from_others and bool(self._incoming)
            self._call(request)

    def _call(self, request: protocol.Request) -> None:
        self._busy = True

        def answered(reply: protocol.Reply) -> None:
            self._busy = False
            self._since = self._server.loop.now()
            if self._stream.fileno() >= 0:
                self._answered(CALLS[type(request)].then, reply)
            else:
                self.peer.close()

        self._server.desk.answer(self.peer, request, answered)

    def _answered(self, then: Then, reply: protocol.Reply) -> None:
        if then is Then.NOTHING:
            self._end_with(reply)
            return
        self.send(reply)
        if then is Then.EVENTS and not isinstance(reply, Refused):
            self.is_listening = True
            self._server.replay(self)

    def _end_with(self, reply: protocol.Reply) -> None:
        self._ending = True
        self._incoming.clear()
        self.send(reply)

    def _flush(self) -> None:
        try:
            while self._outgoing:
                del self._outgoing[: self._stream.send(self._outgoing)]
        except BlockingIOError:
            # Who does not read its answers is not heard: they would pile up here.
            events = READ | WRITE if self.is_listening else WRITE
            self._server.loop.watch(self._stream.fileno(), events, self._ready)
            return
        except OSError:
            self.close()
            return
        if self._ending:
            self.close()
        else:
            self._server.loop.watch(self._stream.fileno(), READ, self._ready)


class Server:
    """The listening socket and its clients."""

    def __init__(
        self,
        loop: Loop,
        listener: socket.socket,
        connect: Callable[[Server], Desk],
        greet: Callable[[], None] = lambda: None,
    ) -> None:
        self.loop = loop
        self._greet = greet
        self._listener = listener
        self._clients: set[Connection] = set()
        self.account_of: Callable[[int], int] = lambda uid: uid  # for whom a user counts
        self._unheard: dict[int | None, deque[protocol.Reply]] = {}  # by whose they are
        self.desk = connect(self)
        listener.settimeout(0)
        name_senders(listener)  # so that it holds for a connection from its first byte
        loop.watch(listener.fileno(), READ, lambda _events: self._accept())
        loop.every(1.0, self._drop_late)

    def publish(self, uid: int | None, message: protocol.Reply) -> None:
        """Send an event to those who may know; keep a few for a listener that comes later."""
        heard = False
        for client in list(self._clients):
            if client.may_hear(uid):
                client.send(message)
                heard = True
        if not heard:  # nobody's flood pushes out what others are to hear
            self._unheard.setdefault(uid, deque(maxlen=MAX_BACKLOG)).append(message)
        if len(self._unheard) > MAX_UNHEARD:
            self._forget_unheard()

    def replay(self, client: Connection) -> None:
        """Send a new listener what nobody has heard yet."""
        for uid in [uid for uid in self._unheard if _may_hear(client.peer.uid, uid)]:
            for message in self._unheard.pop(uid):
                client.send(message)

    def listeners(self, uid: int) -> int:
        """Return how many connections of a user listen to events."""
        return sum(client.is_listening and client.peer.uid == uid for client in self._clients)

    def may_wait(self, client: Connection) -> bool:
        """Tell whether what a client left unfinished may wait here."""
        buffered = Counter[int]()
        for each in self._clients:
            buffered[self.account_of(each.peer.uid)] += each.buffered
        return crowd.may_wait(client.buffered, self.account_of(client.peer.uid), buffered)

    def forget(self, client: Connection) -> None:
        """Let a client go."""
        self._clients.discard(client)

    def close(self) -> None:
        """Hang up on everybody."""
        for client in list(self._clients):
            client.close()
        self.loop.forget(self._listener.fileno())
        self._listener.close()

    def _accept(self) -> None:
        try:
            stream, _ = self._listener.accept()
        except OSError:
            return  # gone before we came, or out of descriptors: the next turn tries again
        self._greet()
        stream.settimeout(0)
        try:
            name_senders(stream)
            peer = identify(stream)
        except PeerRefused as error:
            _turn_away(stream, Refused(error.code, str(error)[:400]))
            return
        places = Counter(self.account_of(each.peer.uid) for each in self._clients)
        if not crowd.has_place(self.account_of(peer.uid), places):
            peer.close()
            _turn_away(stream, Refused("busy", "too many connections: try again later"))
            return
        self._clients.add(Connection(self, stream, peer))

    def _forget_unheard(self) -> None:
        """Drop the oldest of whoever has most users with something to hear."""
        accounts = {uid: None if uid is None else self.account_of(uid) for uid in self._unheard}
        (largest, _), *_ = Counter(accounts.values()).most_common(1)
        del self._unheard[next(uid for uid, account in accounts.items() if account == largest)]

    def _drop_late(self) -> None:
        now = self.loop.now()
        for client in [client for client in self._clients if client.is_late(now)]:
            client.close()


def _framed(reply: protocol.Reply) -> bytes:
    try:
        return protocol.frame(reply)
    except ProtocolViolation as error:
        return protocol.frame(Refused("too_long", str(error)))


def _may_hear(listener: int, owner: int | None) -> bool:
    return owner is None or listener in {owner, 0}


def _turn_away(stream: socket.socket, reply: Refused) -> None:
    with stream:
        try:
            stream.send(protocol.frame(reply))
        except OSError:
            return
