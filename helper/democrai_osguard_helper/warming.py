"""A small child that keeps the kernel's lock for moving processes warm while a peer is served.

The first move after a pause waits for a grace period of RCU (6 to 15 ms measured); one that follows
at once takes 0.1 ms. So a child moves itself to where it is as soon as a connection arrives, and
again for a moment: the wait passes while the peer makes its plan, and while its request is read,
written down and applied. Without it all works, later.
"""

from __future__ import annotations

import os
import select
import socket
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from .cgroups import Tree

_NUDGE: Final = b"x"
WARM_TURNS: Final = 30  # moves after a connection, while its request may still come
TURN_SECONDS: Final = 0.005  # shorter than a grace period: the lock does not cool between two
_FIRST: Final = 3
_LAST: Final = 65536


class Warmer:
    """The child, and the line to it; it ends when the line does."""

    def __init__(self, tree: Tree) -> None:
        self._line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._line.settimeout(0)
        self._pid = os.fork()
        if self._pid == 0:
            _serve(theirs, tree)
        theirs.close()

    def nudge(self) -> None:
        """Let the child warm the lock; a child that is gone or busy is not missed."""
        try:
            self._line.send(_NUDGE)
        except OSError:
            return

    def close(self) -> None:
        """End the child."""
        self._line.close()
        os.waitpid(self._pid, 0)


def _serve(line: socket.socket, tree: Tree) -> None:
    try:
        # Whatever else the daemon has open, its lock among it, must end with the daemon.
        os.closerange(_FIRST, line.fileno())
        os.closerange(line.fileno() + 1, _LAST)
        procs = os.open(f"{tree.home()}/cgroup.procs", os.O_WRONLY | os.O_CLOEXEC)
        while line.recv(1):
            _keep_warm(line, procs)
    finally:
        os._exit(0)


def _keep_warm(line: socket.socket, procs: int) -> None:
    for _ in range(WARM_TURNS):
        os.write(procs, b"0")
        if select.select([line], [], [], TURN_SECONDS)[0]:
            return  # another connection, which begins anew, or the end
