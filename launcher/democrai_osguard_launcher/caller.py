"""A process that waits in a system call, seen from the broker: its memory, folder and descriptors.

Everything here is read while the caller is stopped in the kernel, but its other threads run: a
value is read once, and before it is acted upon the listener says whether the caller still waits.
"""

from __future__ import annotations

import errno
import os
from time import monotonic

from . import kernel
from .record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

AT_FDCWD = -100
_PATH_MAX = 4096
_OWN_DESCRIPTORS = b"/proc/self/fd/"
_PAGE = 4096
_LONGEST_STATUS = 1 << 16  # of somebody in some thousands of groups; a longer one is refused
# What these names mean depends on who asks.
_OWN_NAMES = {
    b"/proc/self": b"/proc/%d",
    b"/proc/thread-self": b"/proc/%d",
    b"/dev/fd": b"/proc/%d/fd",
    b"/dev/stdin": b"/proc/%d/fd/0",
    b"/dev/stdout": b"/proc/%d/fd/1",
    b"/dev/stderr": b"/proc/%d/fd/2",
}
_MOST_MEMORIES = min(16, os.sysconf("SC_OPEN_MAX") // 8)  # the rest is for what is done
_MEMORY_LASTS = 0.1  # seconds: then a thread's number could be another's
_memories: dict[int, tuple[int, float]] = {}  # of threads: the file, and when it was opened
_own: list[int] = []  # the folder of this process's descriptors, in a broker


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
            end = piece.find(b"\0")
            if end >= 0:
                return found + piece[:end]
            found += piece
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))

    def memory(self, address: int, size: int) -> bytes:
        """Read bytes of the caller's memory; raise EFAULT where there are less, or it is gone."""
        file, since = _memories.get(self.thread, (-1, 0.0))
        if file >= 0 and monotonic() - since < _MEMORY_LASTS:
            found = _read(file, size, address)
            if len(found) == size:
                return found
        found = _read(self._open_memory(), size, address)
        if len(found) != size:  # of a process that has been killed there is nothing to read
            raise OSError(errno.EFAULT, os.strerror(errno.EFAULT))
        return found

    def _open_memory(self) -> int:
        """Open the caller's memory, and keep it for the next call: half the cost of a create."""
        if len(_memories) >= _MOST_MEMORIES:
            forget_memories()
        try:
            file = os.open(f"/proc/{self.thread}/mem", os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError as error:
            raise OSError(errno.EFAULT, os.strerror(errno.EFAULT)) from error
        replaced = _memories.pop(self.thread, None)
        if replaced is not None:
            os.close(replaced[0])
        _memories[self.thread] = file, monotonic()
        return file

    def store(self, address: int, content: bytes, check: Callable[[], object]) -> None:
        """Write bytes into the caller's memory; raise EFAULT where there is none.

        `check` raises where the caller waits no more: only now is it known whose memory this is.
        """
        descriptor = os.open(f"/proc/{self.thread}/mem", os.O_WRONLY | os.O_CLOEXEC)
        try:
            check()
            written = _written(descriptor, content, address)
        finally:
            os.close(descriptor)
        if written != len(content):
            raise OSError(errno.EFAULT, os.strerror(errno.EFAULT))

    def integer(self, place: int) -> int:
        """Return an argument as the signed 32-bit number that descriptors and identities are."""
        value = self.arguments[place] & 0xFFFFFFFF
        return value - (1 << 32) if value >= 1 << 31 else value

    def long(self, place: int) -> int:
        """Return an argument as the signed 64-bit number that lengths of files are."""
        value = self.arguments[place]
        return value - (1 << 64) if value >= 1 << 63 else value

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
        base = self.base(folder)
        try:
            return kernel.open_without_magic_links(base, path, flags)
        finally:
            os.close(base)

    def parent(self, folder: int, path: bytes, *, slashes: bool = False) -> tuple[int, bytes]:
        """Open the folder that a new or doomed name is in; return it and the name.

        Slashes may follow the name where it is a folder's; of anything else that is an error.
        """
        head, _, name = (path.rstrip(b"/") if slashes else path).rpartition(b"/")
        if name in {b"", b".", b".."}:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        if head:
            return self.resolve(folder, head), name
        return self.resolve(folder, b"/") if path.startswith(b"/") else self.base(folder), name

    def identity(self) -> tuple[tuple[bytes, ...], int, int]:
        """Return who the caller is to files, its capabilities and its umask, as /proc says.

        Who it is: the file system's user and group, and all other groups.
        """
        status = self._status()
        user, group = (_field(status, name).split()[3] for name in (b"Uid", b"Gid"))
        who = user, group, *_field(status, b"Groups").split()
        return who, int(_field(status, b"CapEff"), 16), int(_field(status, b"Umask"), 8)

    def process(self) -> int:
        """Return the number of the caller's process; 0 when it is gone."""
        try:
            return int(_field(self._status(), b"Tgid"))
        except OSError:
            return 0

    def has_caught_signal(self) -> bool:
        """Tell whether a signal waits for the caller that it wants to handle."""
        try:
            status = self._status()
        except OSError:
            return False
        own, shared, blocked, caught = (
            int(_field(status, name), 16) for name in (b"SigPnd", b"ShdPnd", b"SigBlk", b"SigCgt")
        )
        return bool((own | shared) & caught & ~blocked)

    def _status(self) -> bytes:
        descriptor = os.open(f"/proc/{self.thread}/status", os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.read(descriptor, _LONGEST_STATUS)
        finally:
            os.close(descriptor)

    def base(self, folder: int) -> int:
        """Open, without rights, what a path begins at: a descriptor, or the working folder."""
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
    if _own:
        return os.readlink(str(descriptor), dir_fd=_own[0])
    return os.readlink(f"/proc/self/fd/{descriptor}")


def told_path(descriptor: int) -> str:
    """Return where the open object is; close it where that cannot be told, being too long."""
    try:
        return real_path(descriptor)
    except OSError:
        os.close(descriptor)
        raise


def forget_memories() -> None:
    """Close what is kept: a program is started, and its threads have another memory then."""
    while _memories:
        os.close(_memories.popitem()[1][0])


def _read(file: int, size: int, address: int) -> bytes:
    try:
        return os.pread(file, size, address)
    except (OSError, OverflowError):
        return b""


def _written(descriptor: int, content: bytes, address: int) -> int:
    try:
        return os.pwrite(descriptor, content, address)
    except (OSError, OverflowError):
        return 0


def look_up(call: Call, folder: int, text: bytes, *, follow: bool) -> int:
    """Open, without rights, what the path means to the caller, also through links of /proc."""
    own = own_name(call, text)
    if own is not None:
        return os.open(own, os.O_PATH | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW))
    return call.resolve(folder, text, follow=follow)


def own_name(call: Call, text: bytes) -> bytes | None:
    """Return the name that means to anybody what this one means to the caller, if they differ."""
    if b".." in text.split(b"/"):
        return None  # then it leads to somebody else's
    for name, real in _OWN_NAMES.items():
        if text == name or text.startswith(name + b"/"):
            return real % call.thread + text[len(name) :]
    return None


def keep_own_descriptors_at_hand() -> None:
    """Open the folder of this process's descriptors, which spares looking it up each time."""
    _own[:] = [os.open("/proc/self/fd", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)]
