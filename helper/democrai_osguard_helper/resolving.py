"""The daemon's side of the resolver: starts it without rights, asks it, reads it with distrust."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from typing import TYPE_CHECKING, Final

from . import fields as read
from .endpoints import EndpointError, parse_name, parse_network
from .loop import READ
from .names import MAX_ADDRESSES, Answer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from .endpoints import Network
    from .loop import Loop

    Started = tuple[socket.socket, subprocess.Popen[bytes] | None]

MAX_LINE: Final = 64 * 1024
PATIENCE: Final = 6.0  # seconds until a name counts as failed
_START: Final = (
    "import sys; sys.path.insert(0, {!r}); "
    "from democrai_osguard_helper import resolver; resolver.run()"
)
_HERE: Final = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_FIELDS: Final = {"name", "error", "addresses", "resolvers"}


class Resolving:
    """A conversation with the resolver process; it is started when a name is first asked for."""

    def __init__(
        self,
        loop: Loop,
        heard: Callable[[Answer, tuple[Network, ...]], None],
        start: Callable[[], Started],
    ) -> None:
        self._loop = loop
        self._heard = heard
        self._open = start
        self._conversation: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._pending: dict[str, list[Callable[[], None]]] = {}
        self._buffer = b""
        self.state = "idle"

    def ask(self, names: Iterable[str], then: Callable[[], None]) -> None:
        """Ask for names; call `then` when each has an answer or has waited long enough."""
        names = tuple(names)
        left = set(names)

        def one_less(name: str) -> None:
            if name in left:
                left.discard(name)
                if not left:
                    then()

        if not names:
            then()
            return
        fresh = [name for name in names if name not in self._pending]
        for name in names:
            self._pending.setdefault(name, []).append(lambda name=name: one_less(name))  # type: ignore[misc]
        self._loop.later(PATIENCE, lambda: self._give_up(names))
        self._send(fresh)

    def close(self) -> None:
        """End the resolver."""
        if self._conversation is not None:
            self._loop.forget(self._conversation.fileno())
            self._conversation.close()
            self._conversation = None
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _send(self, names: list[str]) -> None:
        if not names:
            return
        try:
            if self._conversation is None:
                self._start()
            assert self._conversation is not None  # noqa: S101 - `_start` sets it or raises
            self._conversation.sendall(json.dumps(names).encode() + b"\n")
        except OSError as error:
            self._lost(f"cannot reach the resolver: {error.strerror}")

    def _start(self) -> None:
        ours, self._process = self._open()
        ours.settimeout(1.0)
        self._conversation = ours
        self._buffer = b""
        self.state = "running"
        self._loop.watch(ours.fileno(), READ, lambda _events: self._readable())

    def _readable(self) -> None:
        assert self._conversation is not None  # noqa: S101 - it is watched only while it is there
        try:
            data = self._conversation.recv(MAX_LINE)
        except OSError as error:
            self._lost(str(error))
            return
        self._buffer += data
        if not data or len(self._buffer) > 2 * MAX_LINE:
            self._lost("the resolver ended" if not data else "the resolver says too much")
            return
        *lines, self._buffer = self._buffer.split(b"\n")
        for line in lines:
            self._line(line)

    def _line(self, line: bytes) -> None:
        try:
            answer, resolvers = parse_answer(line)
        except read.ProtocolViolation as error:
            self._lost(f"the resolver talks nonsense: {error}")
            return
        self._heard(answer, resolvers)
        self._done(answer.name)

    def _done(self, name: str) -> None:
        for callback in self._pending.pop(name, ()):
            callback()

    def _give_up(self, names: Iterable[str]) -> None:
        for name in names:
            if name in self._pending:
                self._heard(Answer(name, (), "no answer in time"), ())
                self._done(name)

    def _lost(self, why: str) -> None:
        self.state = why
        self.close()
        for name in list(self._pending):
            self._heard(Answer(name, (), why), ())
            self._done(name)


def spawn() -> Started:
    """Start the resolver with nothing but one end of a conversation; it becomes nobody itself."""
    ours, theirs = socket.socketpair()
    with theirs:
        process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
            [sys.executable, "-I", "-c", _START.format(_HERE)],
            stdin=theirs.fileno(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={"LC_ALL": "C"},
            cwd="/",
        )
    return ours, process


def dial(path: str) -> Started:
    """Connect to a resolver that the service manager starts for each connection."""
    conversation = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        conversation.settimeout(1.0)
        conversation.connect(path)
    except OSError:
        conversation.close()
        raise
    return conversation, None


def parse_answer(line: bytes) -> tuple[Answer, tuple[Network, ...]]:
    """Read one line of the resolver; raise ProtocolViolation for anything else. Pure."""
    document = read.document(line)
    if document.keys() != _FIELDS:
        raise read.ProtocolViolation("answer: missing or unknown field")
    try:
        name = parse_name(read.line(document["name"], "name"))
        resolvers = read.items(_address, MAX_ADDRESSES)(document["resolvers"], "resolvers")
        addresses = read.items(_timed_address)(document["addresses"], "addresses")
    except EndpointError as error:
        raise read.ProtocolViolation(str(error)) from error
    return Answer(name, addresses, read.prose(document["error"], "error")), resolvers


def _address(value: object, at: str) -> Network:
    network = parse_network(read.line(value, at))
    if not network.is_address:
        raise read.ProtocolViolation(f"{at}: a range is no address")
    return network


def _timed_address(value: object, at: str) -> tuple[Network, float]:
    if not isinstance(value, list) or len(value) != 2:  # noqa: PLR2004 - address and time to live
        raise read.ProtocolViolation(f"{at}: expected an address and its time to live")
    return _address(value[0], at), float(read.count(value[1], at))
