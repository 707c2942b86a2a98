"""A process that waits in a system call, seen from the broker: its memory, folder and descriptors.

Everything here is read while the caller is stopped in the kernel, but its other threads run: a
value is read once, and before it is acted upon the listener says whether the caller still waits.
"""

from __future__ import annotations

import errno
import os

from . import kernel
from .record import Record

AT_FDCWD = -100
_PATH_MAX = 4096
_OWN_DESCRIPTORS = b"/proc/self/fd/"
_PAGE = 4096


class Call(Record):
    """One waiting call: which thread, which call, which arguments."""

    id: int
    thread: int
    number: int
    arguments: tuple[int, ...]

    def text(self, place: int) -> bytes:
        """Read the string that an argument points to; raise OSError as the kernel would."""
        address, found = self.arguments[place], b""
        while len(found) < _PATH_MAX:
            # Up to the end of the page: the next one may not be mapped.
            piece = self.memory(address + len(found), _PAGE - (address + len(found)) % _PAGE)
            text, zero, _ = piece.partition(b"\0")
            found += text
            if zero:
                return found
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))

    def memory(self, address: int, size: int) -> bytes:
        """Read bytes of the caller's memory; raise EFAULT where there are none."""
        descriptor = os.open(f"/proc/{self.thread}/mem", os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.pread(descriptor, size, address)
        except (OSError, OverflowError) as error:
            raise OSError(errno.EFAULT, os.strerror(errno.EFAULT)) from error
        finally:
            os.close(descriptor)

    def integer(self, place: int) -> int:
        """Return an argument as the signed 32-bit number that descriptors and identities are."""
        value = self.arguments[place] & 0xFFFFFFFF
        return value - (1 << 32) if value >= 1 << 31 else value

    def opened(self, number: int) -> int:
        """Open, without rights, what the caller's descriptor means."""
        try:
            return os.open(f"/proc/{self.thread}/fd/{number}", os.O_PATH | os.O_CLOEXEC)
        except FileNotFoundError as error:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF)) from error

    def resolve(self, folder: int, path: bytes, *, follow: bool = True) -> int:
        """Open, without rights, the object that the path means to the caller.

        Links of /proc that jump to open files are refused with ELOOP, since to the broker they
        would mean the broker's own; but for one: libc itself changes modes by way of it.
        """
        if not path:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        if follow and path.startswith(_OWN_DESCRIPTORS) and path[len(_OWN_DESCRIPTORS) :].isdigit():
            return self.opened(int(path[len(_OWN_DESCRIPTORS) :]))
        flags = os.O_PATH | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
        if path.startswith(b"/"):  # then the folder does not count, not even one that is not open
            return kernel.open_without_magic_links(AT_FDCWD, path, flags)
        base = self._base(folder)
        try:
            return kernel.open_without_magic_links(base, path, flags)
        finally:
            os.close(base)

    def parent(self, folder: int, path: bytes) -> tuple[int, bytes]:
        """Open the folder that a new or doomed name is in; return it and the name."""
        head, _, name = path.rpartition(b"/")
        if name in {b"", b".", b".."}:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        above = head or (b"/" if path.startswith(b"/") else b".")
        return self.resolve(folder, above), name

    def identity(self) -> tuple[int, int, int]:
        """Return the caller's file system user, group and umask, as /proc says."""
        status = self._status()
        user, group = (int(_field(status, name).split()[3]) for name in (b"Uid", b"Gid"))
        return user, group, int(_field(status, b"Umask"), 8)

    def process(self) -> int:
        """Return the number of the caller's process; 0 when it is gone."""
        try:
            return int(_field(self._status(), b"Tgid"))
        except OSError:
            return 0

    def _status(self) -> bytes:
        descriptor = os.open(f"/proc/{self.thread}/status", os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.read(descriptor, _PAGE)
        finally:
            os.close(descriptor)

    def _base(self, folder: int) -> int:
        name = "cwd" if folder == AT_FDCWD else f"fd/{folder}"
        try:
            return os.open(f"/proc/{self.thread}/{name}", os.O_PATH | os.O_CLOEXEC)
        except FileNotFoundError as error:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF)) from error


def _field(status: bytes, name: bytes) -> bytes:
    """Return the value of a line; the first line is the name, which has no line breaks in it."""
    start = status.index(b"\n" + name + b":") + len(name) + 2
    return status[start : status.index(b"\n", start)]


def real_path(descriptor: int) -> str:
    """Return where the open object is, in the kernel's own words."""
    return os.readlink(f"/proc/self/fd/{descriptor}")
