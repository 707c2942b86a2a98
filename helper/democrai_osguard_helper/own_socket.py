"""The socket of a daemon that was started by hand: made for those who may ask, gone with it."""

from __future__ import annotations

import errno
import os
import socket
import stat
from typing import Final

from .folders import make_parents

BACKLOG: Final = 256


class OwnSocket:
    """A listening socket with a name in the file system."""

    def __init__(self, path: str, gid: int | None) -> None:
        self._path = path
        self._gid = gid
        self._made: tuple[int, int] | None = None

    def listen(self) -> socket.socket:
        """Make the socket; what an ended daemon left there is replaced, and nothing else."""
        make_parents(self._path)
        _make_way(self._path)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(self._path)  # the umask keeps everybody out until the mode is set
        self._made = _identity(self._path)
        if self._gid is not None:
            os.chown(self._path, 0, self._gid)
        os.chmod(self._path, 0o660)
        listener.listen(BACKLOG)
        return listener

    def remove(self) -> None:
        """Remove the name, unless there was none made or it belongs to another one by now."""
        if self._made is not None and _identity(self._path) == self._made:
            os.unlink(self._path)


def _make_way(path: str) -> None:
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise OSError(errno.EEXIST, "there is something that is no socket", path)
    if _is_served(path):
        raise OSError(errno.EADDRINUSE, "somebody listens there", path)
    os.unlink(path)


def _is_served(path: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as visitor:
        visitor.settimeout(0)
        try:
            visitor.connect(path)
        except ConnectionRefusedError:
            return False
        except BlockingIOError:
            return True  # so many wait that nobody else can
    return True


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino
