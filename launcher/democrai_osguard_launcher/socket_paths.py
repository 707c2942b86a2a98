"""Unix sockets with a path: looked up for the caller, judged where they really are."""

from __future__ import annotations

import errno
import os
import stat

from . import helper_socket
from .caller import AT_FDCWD, told_path
from .name_trials import objects_at
from .peers import AF_UNIX

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .broker import Broker
    from .caller import Call


class OpenPath:
    """A socket in the file system, held open so that it stays the judged one; to be closed."""

    def __init__(self, call: Call, path: bytes) -> None:
        self._held = call.resolve(AT_FDCWD, path)
        self.path = told_path(self._held)

    def fault(self) -> int:
        """Return the errno for what no rule makes right: no socket, or the helper's; else 0.

        The helper trusts its peer to be who asks, and that would be the broker, whom nobody holds.
        """
        status = os.fstat(self._held)
        if not stat.S_ISSOCK(status.st_mode):
            return errno.ECONNREFUSED
        for place in helper_socket.places():
            same = (status.st_dev, status.st_ino) in objects_at(place)
            if same or self.path == os.path.realpath(place):
                return errno.EACCES
        return 0

    @property
    def raw(self) -> bytes:
        """Return an address that leads the broker to that very socket."""
        return AF_UNIX.to_bytes(2, "little") + b"/proc/self/fd/%d\0" % self._held

    def judge(self, broker: Broker) -> None:
        """Raise OSError unless the caller may talk to who listens there, which is to modify it."""
        code = self.fault() if broker.covers("modify", self._held) else errno.EACCES
        if code:
            raise OSError(code, os.strerror(code))

    def close(self) -> None:
        """Let go of it."""
        os.close(self._held)
