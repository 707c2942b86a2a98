"""Looking as reading (`--stat-as-read`): what stat and its kin tell needs a rule that reads.

Landlock does not see these calls, so none of them goes on to the kernel. The broker opens the
object without rights, judges where that really is, asks the kernel about what it opened, and
writes the answer into the caller's memory. A descriptor that the caller already has was judged when
it was opened, but for those without rights (O_PATH), which Landlock lets anybody open.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat

from . import kernel
from .caller import AT_FDCWD, own_name, real_path, told_path
from .record import Record
from .sights import AT_EMPTY_PATH, SIGHTS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .broker import Broker
    from .caller import Call

_INT = 0xFFFFFFFF
_AT_EACCESS, _AT_STATX = 0x200, 0x6000
_PIDFD_THREAD = os.O_EXCL
_TRUSTED = b"trusted."  # root's own, which a confined root does not see
_PATH_MAX, _XATTR_MAX = 4096, 65536


class Found(Record):
    """An open object, and whether the caller has it open with rights already."""

    held: int
    is_open: bool


def _find(call: Call, folder: int, path: int, *, follow: bool, may_be_empty: bool) -> Found:
    text = call.text(path) if call.arguments[path] or not may_be_empty else b""
    if not text and may_be_empty:
        if folder != AT_FDCWD:
            return _own(call, folder)
        text = b"."
    own = own_name(call, text)
    if own is None:
        return Found(call.resolve(folder, text, follow=follow), is_open=False)
    number = own.removeprefix(b"/proc/%d/fd/" % call.thread)
    if follow and number.isdigit():
        return _own(call, int(number))
    flags = os.O_PATH | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
    return Found(os.open(own, flags), is_open=False)


def _own(call: Call, number: int) -> Found:
    copy = _copy(call, number)
    return Found(copy, is_open=not fcntl.fcntl(copy, fcntl.F_GETFL) & os.O_PATH)


def _copy(call: Call, number: int) -> int:
    """Return the caller's very descriptor: what it stands for cannot change any more."""
    try:
        process = os.pidfd_open(call.thread, _PIDFD_THREAD)
    except OSError:
        process = os.pidfd_open(call.process())  # before Linux 6.9
    try:
        return kernel.copy_descriptor(process, number)
    finally:
        os.close(process)


def _judged(broker: Broker, call: Call, found: Found) -> int:
    """Return the open object where it may be looked at; raise EACCES where not."""
    if found.is_open:
        return found.held
    path = told_path(found.held)
    own, *more = path.removeprefix("/proc/").split("/") if path.startswith("/proc/") else [""]
    if own.isdigit() and int(own) in {call.thread, call.process()}:
        return found.held
    # Of other processes the kernel would show the caller less than it shows the broker.
    is_anothers = own.isdigit() and bool(more)
    if not is_anothers and broker.sight is not None and broker.sight.reads(path):
        return found.held
    os.close(found.held)
    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)


def _seen(broker: Broker, call: Call, name: str) -> int:
    """Open what the call looks at, if it may."""
    sight = SIGHTS.get(name)
    if sight is None:
        return _judged(broker, call, _own(call, call.integer(0)))
    flags = call.arguments[sight.flags] & _INT if sight.flags is not None else 0
    found = _find(
        call,
        AT_FDCWD if sight.folder is None else call.integer(sight.folder),
        sight.path,
        follow=sight.follows and not flags & sight.stays,
        may_be_empty=name == "readlinkat" or bool(flags & AT_EMPTY_PATH and sight.folder == 0),
    )
    return _judged(broker, call, found)


def _look(
    broker: Broker, call: Call, name: str, place: int | None, ask: Callable[[int], bytes]
) -> int:
    """Ask about the object, and write the answer to where an argument points."""
    held = _seen(broker, call, name)
    try:
        answer = ask(held)
    finally:
        os.close(held)
    if place is None:
        broker.umask_of(call)
    elif answer:
        call.store(call.arguments[place], answer, lambda: broker.umask_of(call))
    return len(answer)


def _status(broker: Broker, call: Call, name: str, place: int) -> int:
    _look(broker, call, name, place, kernel.status_of)
    return 0


def _statx(broker: Broker, call: Call) -> int:
    flags, mask = call.arguments[2] & _AT_STATX, call.arguments[3] & _INT
    _look(broker, call, "statx", 4, lambda held: kernel.long_status_of(held, flags, mask))
    return 0


def _statfs(broker: Broker, call: Call, name: str) -> int:
    _look(broker, call, name, 1, kernel.file_system_of)
    return 0


def _access(broker: Broker, call: Call, name: str, mode: int, flags: int = 0) -> int:
    def ask(held: int) -> bytes:
        kernel.check_access(held, call.integer(mode), flags & _AT_EACCESS)
        return b""

    return _look(broker, call, name, None, ask)


def _readlink(broker: Broker, call: Call, name: str, place: int) -> int:
    size = call.integer(place + 1)
    if size <= 0:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    def ask(held: int) -> bytes:
        if not stat.S_ISLNK(os.fstat(held).st_mode):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        number = _number_of(real_path(held))
        text = os.readlink("", dir_fd=held) if number is None else _name_of(broker, call, number)
        return os.fsencode(text)[: min(size, _PATH_MAX)]

    return _look(broker, call, name, place, ask)


def _number_of(path: str) -> int | None:
    """Return which descriptor a link in /proc stands for; None where it is another link."""
    process, *folders, number = path.split("/")[1:]
    return int(number) if process == "proc" and folders[-1:] == ["fd"] else None


def _name_of(broker: Broker, call: Call, number: int) -> str:
    """Return where a descriptor of the caller's leads; one without rights may not tell that."""
    held = _judged(broker, call, _own(call, number))
    try:
        return real_path(held)
    finally:
        os.close(held)


def _attribute(broker: Broker, call: Call, name: str) -> int:
    wanted = call.text(1)
    if wanted.startswith(_TRUSTED):
        raise OSError(errno.ENODATA, os.strerror(errno.ENODATA))
    return _sized(broker, call, name, 2, lambda held: os.getxattr(_path(held), wanted))


def _attributes(broker: Broker, call: Call, name: str) -> int:
    def ask(held: int) -> bytes:
        names = (os.fsencode(each) for each in os.listxattr(_path(held)))
        return b"".join(name + b"\0" for name in names if not name.startswith(_TRUSTED))

    return _sized(broker, call, name, 1, ask)


def _sized(broker: Broker, call: Call, name: str, place: int, ask: Callable[[int], bytes]) -> int:
    """Answer with as much as there is, where there is room for it; a size of 0 only asks."""
    size = min(call.arguments[place + 1], _XATTR_MAX)

    def fitting(held: int) -> bytes:
        answer = ask(held)
        if size and len(answer) > size:
            raise OSError(errno.ERANGE, os.strerror(errno.ERANGE))
        return answer

    return _look(broker, call, name, place if size else None, fitting)


def _watch(broker: Broker, call: Call) -> int:
    """Add to the caller's own list of watches what the broker has opened."""
    held = _seen(broker, call, "inotify_add_watch")
    try:
        watches = _copy(call, call.integer(0))
        try:
            broker.umask_of(call)
            mask = call.arguments[2] & _INT & ~SIGHTS["inotify_add_watch"].stays
            return kernel.add_watch(watches, os.fsencode(_path(held)), mask)
        finally:
            os.close(watches)
    finally:
        os.close(held)


def _path(held: int) -> str:
    return f"/proc/self/fd/{held}"


LOOK_HANDLERS: Mapping[str, Callable[[Broker, Call], int]] = {
    "stat": lambda b, c: _status(b, c, "stat", 1),
    "lstat": lambda b, c: _status(b, c, "lstat", 1),
    "newfstatat": lambda b, c: _status(b, c, "newfstatat", 2),
    "statx": _statx,
    "access": lambda b, c: _access(b, c, "access", 1),
    "faccessat": lambda b, c: _access(b, c, "faccessat", 2),
    "faccessat2": lambda b, c: _access(b, c, "faccessat2", 2, c.arguments[3]),
    "readlink": lambda b, c: _readlink(b, c, "readlink", 1),
    "readlinkat": lambda b, c: _readlink(b, c, "readlinkat", 2),
    "statfs": lambda b, c: _statfs(b, c, "statfs"),
    "fstat": lambda b, c: _status(b, c, "fstat", 1),
    "fstatfs": lambda b, c: _statfs(b, c, "fstatfs"),
    "getxattr": lambda b, c: _attribute(b, c, "getxattr"),
    "lgetxattr": lambda b, c: _attribute(b, c, "lgetxattr"),
    "listxattr": lambda b, c: _attributes(b, c, "listxattr"),
    "llistxattr": lambda b, c: _attributes(b, c, "llistxattr"),
    "inotify_add_watch": _watch,
}
