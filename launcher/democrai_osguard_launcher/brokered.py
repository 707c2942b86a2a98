"""The calls that the broker completes, one function for each kind of effect.

A handler answers with a value or a descriptor, raises OSError to refuse, or GoOn to leave the call
to the kernel. Only calls that Landlock sees may go on.
"""

from __future__ import annotations

import errno
import os
import stat
import time

from .caller import AT_FDCWD, Call, real_path
from .record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .broker import Broker

_AT_REMOVEDIR = 0x200
_AT_SYMLINK_NOFOLLOW = 0x100
_SET_ID_BITS = 0o6000
_MODE_BITS = 0o1777
_INT = 0xFFFFFFFF
_XATTR_NAME_MAX, _XATTR_SIZE_MAX = 255, 65536
_UTIME_NOW, _UTIME_OMIT = (1 << 30) - 1, (1 << 30) - 2
_NANOSECONDS = 10**9
# What a caller may ask of a file that the broker opens for it. 0o100000 is O_LARGEFILE, which
# Python calls 0 where every file is large.
OPEN_FLAGS = (
    os.O_ACCMODE | os.O_APPEND | os.O_NONBLOCK | os.O_SYNC | os.O_NOCTTY | os.O_CLOEXEC
    | os.O_CREAT | os.O_EXCL | os.O_TRUNC | os.O_NOFOLLOW | 0o100000
)  # fmt: skip


class GoOn(Exception):
    """The kernel shall carry the call out, under Landlock."""


class Descriptor(Record):
    """The answer to an open: a descriptor of the broker's, to be put into the caller."""

    number: int
    close_on_exec: bool


class Place(Record):
    """A name in an open folder, and where that is."""

    folder: int
    name: bytes
    path: str


def place(call: Call, folder: int, path: int) -> Place:
    """Open the folder of the name; where that fails the kernel shall find the same fault."""
    try:
        above, name = call.parent(folder, call.text(path))
    except OSError as error:
        raise GoOn from error
    return Place(above, name, f"{real_path(above).rstrip('/')}/{os.fsdecode(name)}")


def _create(broker: Broker, call: Call, at: Place, flags: int, mode: int) -> Descriptor:
    """Create a file for a caller that may create, and not change what exists."""
    try:
        if flags & ~OPEN_FLAGS or mode & _SET_ID_BITS or not broker.allows("create", at.path):
            raise GoOn
        if flags & os.O_ACCMODE != os.O_WRONLY and not broker.allows("read", at.path):
            raise GoOn
        mode &= _MODE_BITS & ~broker.umask_of(call)
        exactly = flags | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        made = os.open(at.name, exactly, mode, dir_fd=at.folder)
    except FileExistsError as error:
        raise GoOn from error  # a matter of modify, then, and Landlock knows that
    finally:
        os.close(at.folder)
    return Descriptor(made, bool(flags & os.O_CLOEXEC))


def _make_folder(broker: Broker, call: Call, at: Place, mode: int) -> int:
    try:
        if not broker.allows("create", at.path):
            raise GoOn
        os.mkdir(at.name, mode & _MODE_BITS & ~broker.umask_of(call), dir_fd=at.folder)
    finally:
        os.close(at.folder)
    return 0


def _make_node(broker: Broker, call: Call, at: Place, mode: int) -> int:
    """Make a file without opening it, a fifo or a socket; nobody who is confined makes a device."""
    try:
        plain = stat.S_IFMT(mode) in {0, stat.S_IFREG, stat.S_IFIFO, stat.S_IFSOCK}
        if not plain or mode & _SET_ID_BITS or not broker.allows("create", at.path):
            raise GoOn
        kind = stat.S_IFMT(mode) or stat.S_IFREG
        os.mknod(at.name, kind | mode & _MODE_BITS & ~broker.umask_of(call), dir_fd=at.folder)
    finally:
        os.close(at.folder)
    return 0


def _make_link(broker: Broker, call: Call, at: Place, content: int) -> int:
    try:
        if not broker.allows("create", at.path):
            raise GoOn
        text = call.text(content)
        broker.umask_of(call)
        os.symlink(text, at.name, dir_fd=at.folder)
    finally:
        os.close(at.folder)
    return 0


def _remove(broker: Broker, call: Call, at: Place, *, folder: bool) -> int:
    """Remove a name that a rule covers; Landlock can grant that only beneath a folder."""
    try:
        if not broker.allows("delete", at.path):
            raise GoOn
        broker.umask_of(call)
        (os.rmdir if folder else os.unlink)(at.name, dir_fd=at.folder)
    finally:
        os.close(at.folder)
    return 0


def _change(broker: Broker, call: Call, held: int, act: Callable[[str], object]) -> int:
    """Let `act` change the metadata of an open object that a modify rule covers."""
    try:
        broker.umask_of(call)
        if not broker.allows("modify", real_path(held)):
            raise _refusal(errno.EPERM)
        act(f"/proc/self/fd/{held}")
    finally:
        os.close(held)
    return 0


def _set_mode(broker: Broker, call: Call, held: int, mode: int) -> int:
    def act(path: str) -> None:
        if mode & _SET_ID_BITS:  # such a program lends its owner's rights to whoever starts it
            raise _refusal(errno.EPERM)
        os.chmod(path, mode & _MODE_BITS)

    return _change(broker, call, held, act)


def _set_owner(broker: Broker, call: Call, held: int, place: int) -> int:
    user, group = call.integer(place), call.integer(place + 1)
    return _change(broker, call, held, lambda path: os.chown(path, user, group))


def _set_times(broker: Broker, call: Call) -> int:
    folder, times, flags = call.integer(0), call.arguments[2], call.arguments[3]
    wanted = call.memory(times, 32) if times else None
    held = _beside(call, flags) if call.arguments[1] else call.opened(folder)
    return _change(broker, call, held, lambda path: os.utime(path, ns=_stamps(path, wanted)))


def _stamps(path: str, wanted: bytes | None) -> tuple[int, int]:
    """Return access and modification time, where either may be "now" or "as it is"."""
    now, status = time.time_ns(), os.stat(path)
    if wanted is None:
        return now, now
    stamps = []
    for start, current in ((0, status.st_atime_ns), (16, status.st_mtime_ns)):
        seconds = int.from_bytes(wanted[start : start + 8], "little", signed=True)
        rest = int.from_bytes(wanted[start + 8 : start + 16], "little")
        exact = seconds * _NANOSECONDS + rest
        stamps.append({_UTIME_NOW: now, _UTIME_OMIT: current}.get(rest, exact))
    return stamps[0], stamps[1]


def _set_attribute(broker: Broker, call: Call, held: int) -> int:
    def act(path: str) -> None:
        size = call.arguments[3]
        if size > _XATTR_SIZE_MAX:
            raise _refusal(errno.E2BIG)
        value = call.memory(call.arguments[2], size) if size else b""
        os.setxattr(path, _attribute_name(call), value, call.integer(4))

    return _change(broker, call, held, act)


def _remove_attribute(broker: Broker, call: Call, held: int) -> int:
    return _change(broker, call, held, lambda path: os.removexattr(path, _attribute_name(call)))


def _attribute_name(call: Call) -> bytes:
    name = call.text(1)
    # The other namespaces carry capabilities, labels and lists of rights.
    if not name.startswith(b"user.") or len(name) > _XATTR_NAME_MAX:
        raise _refusal(errno.EOPNOTSUPP)
    return name


def _at(call: Call, *, follow: bool = True) -> int:
    return call.resolve(AT_FDCWD, call.text(0), follow=follow)


def _beside(call: Call, flags: int = 0) -> int:
    follow = not flags & _AT_SYMLINK_NOFOLLOW
    return call.resolve(call.integer(0), call.text(1), follow=follow)


def _held(call: Call) -> int:
    return call.opened(call.integer(0))


def _refusal(code: int) -> OSError:
    return OSError(code, os.strerror(code))


def _open(broker: Broker, call: Call) -> Descriptor:
    flags, mode = call.arguments[1] & _INT, call.arguments[2]
    return _create(broker, call, place(call, AT_FDCWD, 0), flags, mode)


def _openat(broker: Broker, call: Call) -> Descriptor:
    flags, mode = call.arguments[2] & _INT, call.arguments[3]
    return _create(broker, call, place(call, call.integer(0), 1), flags, mode)


def _creat(broker: Broker, call: Call) -> Descriptor:
    flags = os.O_CREAT | os.O_WRONLY | os.O_TRUNC
    return _create(broker, call, place(call, AT_FDCWD, 0), flags, call.arguments[1])


def _unlinkat(broker: Broker, call: Call) -> int:
    folder = bool(call.arguments[2] & _AT_REMOVEDIR)
    return _remove(broker, call, place(call, call.integer(0), 1), folder=folder)


HANDLERS: Mapping[str, Callable[[Broker, Call], int | Descriptor]] = {
    "open": _open,
    "openat": _openat,
    "creat": _creat,
    "mkdir": lambda b, c: _make_folder(b, c, place(c, AT_FDCWD, 0), c.arguments[1]),
    "mkdirat": lambda b, c: _make_folder(b, c, place(c, c.integer(0), 1), c.arguments[2]),
    "mknod": lambda b, c: _make_node(b, c, place(c, AT_FDCWD, 0), c.arguments[1] & _INT),
    "mknodat": lambda b, c: _make_node(b, c, place(c, c.integer(0), 1), c.arguments[2] & _INT),
    "symlink": lambda b, c: _make_link(b, c, place(c, AT_FDCWD, 1), 0),
    "symlinkat": lambda b, c: _make_link(b, c, place(c, c.integer(1), 2), 0),
    "unlink": lambda b, c: _remove(b, c, place(c, AT_FDCWD, 0), folder=False),
    "rmdir": lambda b, c: _remove(b, c, place(c, AT_FDCWD, 0), folder=True),
    "unlinkat": _unlinkat,
    "chmod": lambda b, c: _set_mode(b, c, _at(c), c.arguments[1]),
    "fchmod": lambda b, c: _set_mode(b, c, _held(c), c.arguments[1]),
    "fchmodat": lambda b, c: _set_mode(b, c, _beside(c), c.arguments[2]),
    "chown": lambda b, c: _set_owner(b, c, _at(c), 1),
    "lchown": lambda b, c: _set_owner(b, c, _at(c, follow=False), 1),
    "fchown": lambda b, c: _set_owner(b, c, _held(c), 1),
    "fchownat": lambda b, c: _set_owner(b, c, _beside(c, c.arguments[4]), 2),
    "utimensat": _set_times,
    "setxattr": lambda b, c: _set_attribute(b, c, _at(c)),
    "lsetxattr": lambda b, c: _set_attribute(b, c, _at(c, follow=False)),
    "fsetxattr": lambda b, c: _set_attribute(b, c, _held(c)),
    "removexattr": lambda b, c: _remove_attribute(b, c, _at(c)),
    "lremovexattr": lambda b, c: _remove_attribute(b, c, _at(c, follow=False)),
    "fremovexattr": lambda b, c: _remove_attribute(b, c, _held(c)),
}
