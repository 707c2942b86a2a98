"""A small synchronous client: one connection, one call at a time.

It never retries and never guesses: a refusal, a hang-up and a helper that is not there are three
different errors, and none of them leaves the caller believing that it is confined.
"""

from __future__ import annotations

import contextlib
import socket
from typing import TYPE_CHECKING, Final, Self, TypeVar

from . import protocol
from .protocol import (
    Applied,
    Confine,
    Denial,
    Events,
    List,
    Listed,
    Listening,
    Notice,
    ProtocolViolation,
    Refused,
    Release,
    Released,
    Report,
    Revoke,
    Show,
    Shown,
    Status,
    Update,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

TIMEOUT: Final = 15.0  # seconds: a resolver that does not answer is given up long before

R = TypeVar("R")


class HelperUnavailable(Exception):
    """Nobody answers at the helper's socket, or the connection broke."""


class HelperSilent(HelperUnavailable):
    """Somebody listens at the helper's socket, and does not answer."""


class HelperRefused(Exception):
    """The helper understood and refused; `code` is stable."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(f"{code}: {text}")
        self.code = code
        self.text = text

    def __reduce__(self) -> tuple[type, tuple[str, str], dict[str, object]]:
        """Let a copy, here or in another process, be made from its two parts."""
        return type(self), (self.code, self.text), vars(self)


class Client:
    """A connection to the helper; it closes as a context manager."""

    def __init__(self, path: str | None = None, timeout: float = TIMEOUT) -> None:
        self._path = path or protocol.socket_path()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(timeout)
        try:
            self._socket.connect(self._path)
        except OSError as error:
            self._socket.close()
            raise HelperUnavailable(f"{self._path}: {error.strerror}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the connection."""
        self._socket.close()

    def hang_up(self) -> None:
        """End the conversation from another thread, which then stops waiting for events."""
        with contextlib.suppress(OSError):  # it may have ended by itself
            self._socket.shutdown(socket.SHUT_RDWR)

    def confine(self, request: Confine) -> Applied:
        """Move this process into a new sandbox; the connection is of no use afterwards."""
        return self._ask(request, Applied)

    def update(self, request: Update) -> Applied:
        """Replace the policy of a sandbox."""
        return self._ask(request, Applied)

    def revoke(self, request: Revoke) -> Applied:
        """Take endpoints away from a sandbox."""
        return self._ask(request, Applied)

    def release(self, sandbox: str) -> Released:
        """Remove a sandbox, now or when it is empty."""
        return self._ask(Release(sandbox), Released)

    def list(self) -> Listed:
        """Show the sandboxes of this user, however many answers that takes."""
        page = self._ask(List(), Listed)
        found = page.sandboxes
        while page.sandboxes and protocol.goes_on(page):
            page = self._ask(List(page.sandboxes[-1].sandbox), Listed)
            found += page.sandboxes
        return Listed(found)

    def show(self, sandbox: str) -> Shown:
        """Tell what a sandbox was made with."""
        return self._ask(Show(sandbox), Shown)

    def status(self) -> Report:
        """Ask what the host can enforce."""
        return self._ask(Status(), Report)

    def events(self) -> Iterator[Denial | Notice]:
        """Listen from now on; yield what the user's sandboxes were refused until the end."""
        self._ask(Events(), Listening)
        self._socket.settimeout(None)
        return self._events()

    def _events(self) -> Iterator[Denial | Notice]:
        while True:
            reply = self._receive()
            if not isinstance(reply, Denial | Notice):
                raise ProtocolViolation(f"{reply.CALL} among the events")
            yield reply

    def _ask(self, request: protocol.Request, expected: type[R]) -> R:
        reply = self._answer(protocol.frame(request))
        if isinstance(reply, Refused):
            raise HelperRefused(reply.code, reply.text)
        if not isinstance(reply, expected):
            raise ProtocolViolation(f"{reply.CALL} in answer to {request.CALL}")
        return reply

    def _answer(self, data: bytes) -> protocol.Reply:
        try:
            self._send(data)
        except HelperSilent:
            with contextlib.suppress(HelperSilent, ProtocolViolation):
                return self._receive()  # it may have said why before it hung up
            raise
        return self._receive()

    def _send(self, data: bytes) -> None:
        try:
            self._socket.sendall(data)
        except OSError as error:
            raise HelperSilent(f"{self._path}: {error}") from error

    def _receive(self) -> protocol.Reply:
        length = protocol.frame_length(self._exactly(protocol.HEADER))
        return protocol.parse_reply(self._exactly(length))

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            try:
                part = self._socket.recv(size - len(data))
            except TimeoutError as error:
                raise HelperSilent(f"{self._path}: no answer in time") from error
            except OSError as error:
                raise HelperSilent(f"{self._path}: {error}") from error
            if not part:
                raise HelperSilent(f"{self._path}: the helper hung up")
            data += part
        return bytes(data)
