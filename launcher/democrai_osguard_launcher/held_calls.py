"""What the broker does itself, once a person has approved it, and otherwise leaves to Landlock."""

from __future__ import annotations

import errno
import os
import stat

from . import limits, notification
from .acts import move
from .brokered import HANDLERS, OPEN_FLAGS, Descriptor, GoOn, Place, place
from .caller import AT_FDCWD, Call
from .held_socket import send_signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections.abc import Callable, Iterable, Mapping

    from .holding import HoldingBroker
else:
    import _signal as signal

_INT = 0xFFFFFFFF
_RENAME_NOREPLACE = 1
_FLAGS = OPEN_FLAGS | os.O_DIRECTORY
_OPENING = ("open", "openat", "creat", "truncate")
_DEVICES = (stat.S_IFCHR, stat.S_IFBLK)


def can_be_done(name: str, call: Call, targets: Iterable[str]) -> bool:
    """Tell whether the broker could carry the call out after a yes, so that asking has a point."""
    if name in {"open", "openat"} and _flags(call, 1 if name == "open" else 2) & ~_FLAGS:
        return False
    if name in {"mknod", "mknodat"}:
        return stat.S_IFMT(_flags(call, 1 if name == "mknod" else 2)) not in _DEVICES
    if name == "renameat2":
        return not _flags(call, 4) & ~_RENAME_NOREPLACE
    return name not in _OPENING or all(map(_is_plain, targets))


def _is_plain(path: str) -> bool:
    """Tell whether it is a file, a folder or nothing yet: others could keep the broker waiting."""
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return True
    return stat.S_ISREG(mode) or stat.S_ISDIR(mode)


def _flags(call: Call, place: int) -> int:
    return call.arguments[place] & _INT


def _open(
    broker: HoldingBroker, call: Call, name: str, at: tuple[int, int], flags: int
) -> Descriptor:
    if flags & os.O_CREAT:
        try:
            answer = HANDLERS[name](broker, call)
            assert isinstance(answer, Descriptor)  # noqa: S101 - for the type checker
        except GoOn:
            if flags & os.O_EXCL:
                raise
        else:
            return answer
    return _open_existing(broker, call, _found(call, *at, flags), flags)


def _found(call: Call, folder: int, path: int, flags: int) -> int:
    try:
        return call.resolve(folder, call.text(path), follow=not flags & os.O_NOFOLLOW)
    except OSError as error:
        raise GoOn from error


def _open_existing(broker: HoldingBroker, call: Call, held: int, flags: int) -> Descriptor:
    """Open the file or folder that was found; a device or a fifo could keep us waiting."""
    try:
        mode = os.fstat(held).st_mode
        if flags & ~_FLAGS or not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            raise GoOn
        if not all(broker.covers(each, held) for each in _needed(flags)):
            raise GoOn
        broker.umask_of(call)
        again = flags & ~(os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW) | os.O_CLOEXEC
        opened = _open_at_once(held, again)
    finally:
        os.close(held)
    return Descriptor(opened, bool(flags & os.O_CLOEXEC))


def _open_at_once(held: int, flags: int) -> int:
    """Open it; EAGAIN where somebody has a lease on it, which could keep us for long."""
    opened = os.open(f"/proc/self/fd/{held}", flags | os.O_NONBLOCK)
    if not flags & os.O_NONBLOCK:
        os.set_blocking(opened, True)
    return opened


def _needed(flags: int) -> tuple[str, ...]:
    reads = () if flags & os.O_ACCMODE == os.O_WRONLY else ("read",)
    writes = flags & os.O_ACCMODE or flags & os.O_TRUNC
    return (*reads, "modify") if writes else reads


def _truncate(broker: HoldingBroker, call: Call) -> int:
    held = _found(call, AT_FDCWD, 0, 0)
    try:
        if not stat.S_ISREG(os.fstat(held).st_mode) or not broker.covers("modify", held):
            raise GoOn
        limit = limits.limit_of(call.thread, "fsize")
        broker.umask_of(call)
        opened = _open_at_once(held, os.O_WRONLY | os.O_CLOEXEC)
        try:
            _resize(broker, call, opened, limit)
        finally:
            os.close(opened)
    finally:
        os.close(held)
    return 0


def _resize(broker: HoldingBroker, call: Call, opened: int, limit: int) -> None:
    """Give a file its new length, and the caller the signal if that is beyond its limit.

    The kernel judges that in one step: a file may stay larger than the limit, and not grow so.
    """
    length = call.long(1)
    try:
        limits.within("fsize", limit, lambda: os.ftruncate(opened, length))
    except OSError as error:
        if error.errno == errno.EFBIG and 0 <= limit < length:
            send_signal(
                call, signal.SIGXFSZ, lambda: notification.is_waiting(broker.listener, call)
            )
        raise


def _rename(
    broker: HoldingBroker, call: Call, folders: tuple[int, int], paths: tuple[int, int], flags: int
) -> int:
    old = place(call, folders[0], paths[0], slashes=True)
    try:
        new = place(call, folders[1], paths[1], slashes=True)
        try:
            if any(call.text(each).endswith(b"/") for each in paths):
                _check_folder(old)
            _move(broker, call, old, new, flags)
        finally:
            os.close(new.folder)
    finally:
        os.close(old.folder)
    return 0


def _check_folder(at: Place) -> None:
    """Leave a file whose name is followed by a slash to the kernel, which refuses it."""
    try:
        mode = os.stat(at.name, dir_fd=at.folder, follow_symlinks=False).st_mode
    except OSError as error:
        raise GoOn from error
    if not stat.S_ISDIR(mode):
        raise GoOn


def _move(broker: HoldingBroker, call: Call, old: Place, new: Place, flags: int) -> None:
    exists = os.path.lexists(new.path)
    needed = [
        ("delete", old),
        ("create", new),
        *([("delete", new)] if exists else []),
    ]
    if flags & ~_RENAME_NOREPLACE or (exists and flags):
        raise GoOn
    if not all(broker.allows_at(*each) for each in needed):
        raise GoOn
    mode = os.stat(old.name, dir_fd=old.folder, follow_symlinks=False).st_mode
    if broker.gains(move(old.path, mode, new.path)):
        raise GoOn
    broker.umask_of(call)
    os.rename(old.name, new.name, src_dir_fd=old.folder, dst_dir_fd=new.folder)


_HERE = AT_FDCWD
HELD_HANDLERS: Mapping[str, Callable[[HoldingBroker, Call], int | Descriptor]] = {
    "open": lambda b, c: _open(b, c, "open", (_HERE, 0), _flags(c, 1)),
    "openat": lambda b, c: _open(b, c, "openat", (c.integer(0), 1), _flags(c, 2)),
    "creat": lambda b, c: _open(b, c, "creat", (_HERE, 0), os.O_CREAT | os.O_WRONLY | os.O_TRUNC),
    "truncate": _truncate,
    "rename": lambda b, c: _rename(b, c, (_HERE, _HERE), (0, 1), 0),
    "renameat": lambda b, c: _rename(b, c, (c.integer(0), c.integer(2)), (1, 3), 0),
    "renameat2": lambda b, c: _rename(b, c, (c.integer(0), c.integer(2)), (1, 3), _flags(c, 4)),
}
