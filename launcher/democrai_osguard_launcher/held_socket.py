"""A socket of the caller's in the broker's hands: a copy of the descriptor, the same open file."""

from __future__ import annotations

import errno
import fcntl
import os
import struct
from time import monotonic

from . import kernel
from .peers import unmapped

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    import socket
    from collections.abc import Callable
    from typing import Protocol

    from .caller import Call

    class Closable(Protocol):
        """What can be let go of."""

        def close(self) -> None:
            """Let go of it."""

else:
    import _signal as signal
    import _socket as socket

_ONE_THREAD = os.O_EXCL  # PIDFD_THREAD, from Linux 6.9
_TIME = struct.Struct("=qq")
_MICRO = 1_000_000
CONNECTING = (socket.SOCK_STREAM, socket.SOCK_SEQPACKET)


class HeldSocket:
    """Taken from a waiting caller; to be closed."""

    def __init__(self, call: Call, number: int) -> None:
        self._socket = _as_socket(taken(call, number))
        self.family, self.type = self._socket.family, self._socket.type
        self.content = 0  # bytes that are to be sent on it
        self.control = b""  # what goes with a message
        self.limit: int | None = None  # how many may be open, where descriptors go with it
        self._kept: list[Closable] = []

    @property
    def descriptor(self) -> int:
        """Return our own number of it."""
        return self._socket.fileno()

    @property
    def connects(self) -> bool:
        """Tell whether a connection has two ends, so that connecting takes time."""
        return self.type in CONNECTING

    @property
    def waits(self) -> bool:
        """Tell whether the caller wants to wait for what cannot be done at once."""
        return not fcntl.fcntl(self.descriptor, fcntl.F_GETFL) & os.O_NONBLOCK

    def deadline(self) -> float | None:
        """Return until when the caller wants to wait; None for as long as it takes."""
        option = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _TIME.size)
        seconds, rest = _TIME.unpack(option)
        return monotonic() + seconds + rest / _MICRO if seconds or rest else None

    def peer(self) -> tuple[bytes, int] | None:
        """Return to which address and port of a network it is connected."""
        try:
            text, port = self._socket.getpeername()[:2]
        except OSError:
            return None
        family = socket.AF_INET6 if ":" in text else socket.AF_INET
        return unmapped(socket.inet_pton(family, text.partition("%")[0])), int(port)

    def keep(self, other: Closable) -> None:
        """Close something else together with it."""
        self._kept.append(other)

    def at_once(self, act: Callable[[], int]) -> int:
        """Do what could wait without waiting; the file's flag is set for that moment."""
        flags = fcntl.fcntl(self.descriptor, fcntl.F_GETFL)
        if flags & os.O_NONBLOCK:
            return act()
        fcntl.fcntl(self.descriptor, fcntl.F_SETFL, flags | os.O_NONBLOCK)
        try:
            return act()
        finally:
            fcntl.fcntl(self.descriptor, fcntl.F_SETFL, flags)

    def listen(self, backlog: int) -> None:
        """Have it wait for connections."""
        self._socket.listen(backlog)

    def close(self) -> None:
        """Let go of our copy, and of what was kept with it."""
        self._socket.close()
        while self._kept:
            self._kept.pop().close()


def _as_socket(descriptor: int) -> socket.socket:
    """Return the descriptor as a socket; one that is none is closed."""
    try:
        return socket.socket(fileno=descriptor)
    except OSError:
        os.close(descriptor)
        raise


def taken(call: Call, number: int) -> int:
    """Return a copy of one of the caller's descriptors."""
    process = _process(call)
    try:
        return kernel.copy_descriptor(process, number)
    finally:
        os.close(process)


def send_signal(call: Call, number: int, still_waits: Callable[[], bool]) -> None:
    """Send the caller a signal, if it still waits: only then is it known whose process it is."""
    process = _process(call)
    try:
        if still_waits():
            signal.pidfd_send_signal(process, number)
    finally:
        os.close(process)


def _process(call: Call) -> int:
    try:
        return os.pidfd_open(call.thread, _ONE_THREAD)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        return os.pidfd_open(call.process())
