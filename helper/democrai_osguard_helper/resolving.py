"""The daemon's side of the resolver: starts it without rights, asks it, reads it with distrust."""

from __future__ import annotations

import itertools
import json
import os
import socket
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from . import fields as read
from .answers import MAX_ADDRESSES, Answer
from .endpoints import EndpointError, parse_name, parse_network
from .loop import READ
from .turns import Asker, Shares, Turns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from .endpoints import Network
    from .loop import Loop

    Started = tuple[socket.socket, subprocess.Popen[bytes] | None]

MAX_LINE: Final = 64 * 1024
PATIENCE: Final = 6.0  # seconds until a name counts as failed
# Together as many as the resolver asks for at once.
CALLS: Final = Shares(all=32, of_user=16, of_asker=8, waiting=2048)
ROUNDS: Final = Shares(all=16, of_user=8, of_asker=4, waiting=65536)
_START: Final = (
    "import sys; sys.path.insert(0, {!r}); "
    "from democrai_osguard_helper import resolver; resolver.run()"
)
_HERE: Final = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_FIELDS: Final = {"name", "error", "addresses", "resolvers"}


@dataclass(slots=True)
class _Wait:
    """Somebody who goes on when each of these names is answered."""

    asker: Asker
    names: set[str]
    then: Callable[[], None]


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
        self._numbers = itertools.count()
        self._waits: dict[Asker, _Wait] = {}
        self._calls = Turns(CALLS)
        self._rounds = Turns(ROUNDS)
        self._asked: dict[str, Turns] = {}  # of the resolver, and not answered yet
        self._buffer = b""
        self.state = "idle"

    def ask(self, uid: int, names: Iterable[str], then: Callable[[], None]) -> None:
        """Ask for names; call `then` when each has an answer or has waited long enough."""
        wait = _Wait(Asker(uid, next(self._numbers)), set(names), then)
        if not wait.names:
            then()
            return
        self._waits[wait.asker] = wait
        late = self._calls.want(wait.asker, sorted(wait.names))
        self._loop.later(PATIENCE, lambda: self._give_up(wait, wait.names, "no answer in time"))
        self._give_up(wait, late, "too many names wait to be asked for")
        self._fill()

    def refresh(self, due: Mapping[Asker, Iterable[str]]) -> None:
        """Ask for the names of running sandboxes that are due, and for no others any more."""
        self._rounds.replace(due)
        self._fill()

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

    def _fill(self) -> None:
        """Hand out the places that are free: to calls first, which somebody waits for."""
        for turns in (self._calls, self._rounds):
            while name := turns.take(lambda name, turns=turns: self._is_wanted(name, turns)):  # type: ignore[misc]
                self._asked[name] = turns
                self._send(name)

    def _is_wanted(self, name: str, turns: Turns) -> bool:
        waited_for = turns is self._rounds or self._is_waited_for(name)
        return waited_for and name not in self._asked

    def _is_waited_for(self, name: str) -> bool:
        return any(name in wait.names for wait in self._waits.values())

    def _send(self, name: str) -> None:
        try:
            if self._conversation is None:
                self._start()
            assert self._conversation is not None  # noqa: S101 - `_start` sets it or raises
            self._conversation.sendall(json.dumps([name]).encode() + b"\n")
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
        self._fill()

    def _done(self, name: str) -> None:
        turns = self._asked.pop(name, None)
        if turns is not None:
            turns.done(name)
        for wait in list(self._waits.values()):
            self._settle(wait, (name,))

    def _settle(self, wait: _Wait, names: Iterable[str]) -> None:
        """Let an asker go on when none of its names is left."""
        wait.names.difference_update(names)
        if not wait.names and self._waits.pop(wait.asker, None) is not None:
            self._calls.forget(wait.asker)
            wait.then()

    def _give_up(self, wait: _Wait, names: Iterable[str], why: str) -> None:
        names = tuple(names)
        wait.names.difference_update(names)
        for name in names:
            if not self._is_waited_for(name):  # else it may still be answered in time
                self._heard(Answer(name, (), why), ())
        self._settle(wait, ())

    def _lost(self, why: str) -> None:
        self.state = why
        self.close()
        asked, self._asked = list(self._asked), {}
        self._calls.all_done()
        self._rounds.all_done()
        self._rounds.replace({})  # the next round tries again
        for name in asked:
            self._heard(Answer(name, (), why), ())
            self._done(name)
        for wait in list(self._waits.values()):
            self._give_up(wait, wait.names, why)


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
