"""A real attempt from inside a box, before anybody is told that it holds.

The probe connects to listeners that the helper itself has on loopback: nothing leaves the host,
and without a layer the attempt would succeed, which `control` shows once.
"""

from __future__ import annotations

import errno
import os
import socket
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from .cgroups import Box

TIMEOUT: Final = 2.0  # seconds: a refused connect is answered at once
_FIRST: Final = 3
_LAST: Final = 65536
SILENT: Final = "the probe fell silent"


class Probe:
    """Listeners to knock at, one for each family that the host has."""

    def __init__(self) -> None:
        self._listeners: list[socket.socket] = []
        for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
            self._listen(family, address)

    def _listen(self, family: socket.AddressFamily, address: str) -> None:
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            listener.bind((address, 0))
        except OSError:  # this family has no loopback here, so nothing can be tried on it
            listener.close()
            return
        listener.listen(8)
        listener.settimeout(0)
        self._listeners.append(listener)

    def control(self) -> str:
        """Knock from outside every box; return what is wrong with the listeners, or nothing."""
        wrong = [verdict for verdict in self._verdicts(None) if verdict != "connected"]
        self._drain()
        if not self._listeners:
            return "no loopback address to try a connection on"
        return f"the control attempt failed: {wrong[0]}" if wrong else ""

    def refused(self, box: Box, errors: frozenset[int]) -> str:
        """Knock from inside the box; return an empty text when each attempt was refused so."""
        allowed = {errno.errorcode[code] for code in errors}
        wrong = [verdict for verdict in self._verdicts(box) if verdict not in allowed]
        self._drain()
        return f"a forbidden connect was not refused: {wrong[0]}" if wrong else ""

    def close(self) -> None:
        """Stop listening."""
        for listener in self._listeners:
            listener.close()

    def _verdicts(self, box: Box | None) -> list[str]:
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            self._child(box, writer)
        os.close(writer)
        with os.fdopen(reader, encoding="ascii") as pipe:
            words = pipe.read().split()
        os.waitpid(pid, 0)
        return words if len(words) == len(self._listeners) else [SILENT]

    def _child(self, box: Box | None, writer: int) -> None:
        places = [(listener.family, listener.getsockname()) for listener in self._listeners]
        try:
            # Whatever else the daemon has open, its lock among it, must end with the daemon.
            os.closerange(_FIRST, writer)
            os.closerange(writer + 1, _LAST)
            if box is not None:
                box.move(os.getpid())
            words = [_knock(*place) for place in places]
            os.write(writer, " ".join(words).encode())
        finally:
            os._exit(0)

    def _drain(self) -> None:
        for listener in self._listeners:
            try:
                while True:
                    listener.accept()[0].close()
            except BlockingIOError:
                continue


def _knock(family: int, place: tuple[str, int]) -> str:
    with socket.socket(family, socket.SOCK_STREAM) as knocker:
        knocker.settimeout(TIMEOUT)
        try:
            knocker.connect(place)
        except OSError as error:
            return errno.errorcode.get(error.errno or 0, "timeout")
    return "connected"
