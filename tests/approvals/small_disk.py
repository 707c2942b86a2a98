"""A small file system of a test's own, in a mount namespace that nobody else sees."""

from __future__ import annotations

import ctypes
import errno
import os
from typing import TYPE_CHECKING, Any

from guard.confined import confined

if TYPE_CHECKING:
    from collections.abc import Callable

_NEW_MOUNTS = 0x20000
_RECURSIVE_PRIVATE = 0x4000 | 0x40000
_PIECE = 64 * 1024


class SmallDisk:
    """A folder with little room, which can be filled and freed."""

    def __init__(self, folder: str, size: str) -> None:
        self.folder = folder
        _call("unshare", _NEW_MOUNTS)
        _call("mount", b"none", b"/", None, _RECURSIVE_PRIVATE, None)
        options = f"size={size},mode=0755".encode()
        _call("mount", b"tmpfs", os.fsencode(folder), b"tmpfs", 0, options)

    @property
    def _filler(self) -> str:
        return os.path.join(self.folder, "filler")

    def fill(self) -> None:
        """Leave no room at all."""
        descriptor = os.open(self._filler, os.O_WRONLY | os.O_CREAT, 0o600)
        for size in (_PIECE, 512, 1):
            try:
                while True:
                    os.write(descriptor, bytes(size))
            except OSError as error:
                assert error.errno == errno.ENOSPC  # noqa: PT017 - the disk, and nothing else
        os.close(descriptor)

    def free(self) -> None:
        """Take the filling out."""
        os.unlink(self._filler)


def on_a_small_disk(folder: str, size: str, act: Callable[[SmallDisk], object]) -> Any:  # noqa: ANN401 - as JSON
    """Return what an act in a fork finds on a file system of this size; it ends with the fork."""
    return confined(lambda: act(SmallDisk(folder, size)))


def _call(name: str, *arguments: object) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), name)
