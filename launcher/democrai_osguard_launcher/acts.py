"""What a waiting call would do to which objects: looked up as the caller would meet them.

For explaining and learning only: nothing is decided by what is found here, since the caller's
other threads may change names and memory at any time. A call that will fail for a reason of its
own, such as a name that does not exist, does nothing.
"""

from __future__ import annotations

import os
import stat

from . import addresses, landlock
from .caller import AT_FDCWD, Call, real_path
from .errors import LaunchError
from .program import started_with
from .record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    Place = tuple[int, int]  # a folder's descriptor, and which argument is the path

MOVE = "move"  # no operation of the contract: an object comes under the rights of another place
READ_NEW = 1 << 32  # no right of Landlock: to read what is about to be made
_INT = 0xFFFFFFFF
_AT_EMPTY_PATH, _AT_SYMLINK_NOFOLLOW, _AT_SYMLINK_FOLLOW = 0x1000, 0x100, 0x400
_O_TMPFILE = 0o20000000
_RENAME_NOREPLACE, _RENAME_EXCHANGE = 1, 2
_GONE = " (deleted)"
# What these names mean depends on who asks.
_OWN_NAMES = {
    b"/proc/self": b"/proc/%d",
    b"/proc/thread-self": b"/proc/%d",
    b"/dev/fd": b"/proc/%d/fd",
    b"/dev/stdin": b"/proc/%d/fd/0",
    b"/dev/stdout": b"/proc/%d/fd/1",
    b"/dev/stderr": b"/proc/%d/fd/2",
}


class Act(Record):
    """One operation on one path, and the Landlock right that stands for it."""

    operation: str
    target: str
    right: int
    folder: str = ""  # where a rule must stand, if it cannot stand at the target itself
    leads_to: str = ""  # of a move: where the object would be, with the rights of that place


class _Object(Record):
    """Something that exists: where it really is, and its kind."""

    path: str
    mode: int


def file_acts(name: str, call: Call) -> tuple[Act, ...]:
    """Return what the call would do to files; nothing for a call that is not about files."""
    find = _FINDERS.get(name)
    try:
        return tuple(find(call)) if find else ()
    except OSError:
        return ()  # what cannot be looked up will fail, or is gone


def _opening(call: Call, folder: int, path: int, flags: int) -> Iterator[Act]:
    if flags & os.O_PATH:
        return
    text = call.text(path)
    new = flags & os.O_CREAT and flags & os.O_EXCL
    found = _existing(call, folder, text, follow=not new and not flags & os.O_NOFOLLOW)
    if found is None:
        if flags & os.O_CREAT:
            yield from _making(call, folder, text, reads=flags & os.O_ACCMODE == os.O_RDWR)
    elif not new and not stat.S_ISLNK(found.mode):
        yield from _using(found, flags)


def _using(found: _Object, flags: int) -> Iterator[Act]:
    folder = stat.S_ISDIR(found.mode)
    unnamed = flags & _O_TMPFILE == _O_TMPFILE
    if folder and flags & os.O_ACCMODE and not unnamed:
        return  # a folder cannot be written to
    if flags & os.O_ACCMODE != os.O_WRONLY and not (folder and unnamed):
        right = landlock.READ_DIR if folder else landlock.READ_FILE
        yield Act("read", found.path, right)
    if flags & os.O_ACCMODE or flags & os.O_TRUNC:
        yield Act("modify", found.path, landlock.WRITE_FILE)


def _making(call: Call, folder: int, text: bytes, *, reads: bool = False) -> Iterator[Act]:
    path = _name(call, folder, text)
    if os.path.islink(path):  # to nothing yet: what is made is where it leads
        path = os.path.realpath(path)
    yield Act("create", path, landlock.MAKE_REG)
    if reads:
        yield Act("read", path, READ_NEW)


def _new(call: Call, folder: int, path: int) -> Iterator[Act]:
    text = call.text(path).rstrip(b"/")
    if _existing(call, folder, text, follow=False) is None:
        yield Act("create", _name(call, folder, text), landlock.MAKE_REG)


def _doomed(call: Call, folder: int, path: int) -> Iterator[Act]:
    text = call.text(path).rstrip(b"/")
    found = _existing(call, folder, text, follow=False)
    if found is not None:
        name = _name(call, folder, text)
        # A rule stands where a path really leads, so none can stand at a link.
        above = os.path.dirname(name) if stat.S_ISLNK(found.mode) else ""
        yield Act("delete", name, landlock.REMOVE_FILE, above)


def _moving(call: Call, source: Place, target: Place, flags: int = 0) -> Iterator[Act]:
    """Look at a move, which is held by the rights of the two folders."""
    sides = [(folder, call.text(path).rstrip(b"/")) for folder, path in (source, target)]
    found = [_existing(call, *side, follow=False) for side in sides]
    if found[0] is None or (found[1] is not None and flags & _RENAME_NOREPLACE):
        return
    old, new = (_name(call, *side) for side in sides)
    yield _remove(old)
    yield _make(new)
    if found[1] is not None:  # Landlock sees its removal
        yield _remove(new)
    if flags & _RENAME_EXCHANGE:
        yield _make(old)
    yield Act(MOVE, old, 0, leads_to=new)


def _linking(call: Call, source: Place, target: Place, *, follow: bool) -> Iterator[Act]:
    found = _existing(call, source[0], call.text(source[1]), follow=follow)
    if found is None:
        return
    for act in _new(call, *target):
        yield _make(act.target)
        yield Act(MOVE, found.path, 0, leads_to=act.target)


def _remove(name: str) -> Act:
    return Act("delete", name, landlock.REMOVE_FILE, os.path.dirname(name))


def _make(name: str) -> Act:
    return Act("create", name, landlock.MAKE_REG, os.path.dirname(name))


def _changing(call: Call, folder: int, path: int, *, follow: bool = True) -> Iterator[Act]:
    found = _existing(call, folder, call.text(path), follow=follow)
    if found is not None:
        yield Act("modify", found.path, landlock.WRITE_FILE)


def _changing_open(call: Call) -> Iterator[Act]:
    yield from _whole(call.opened(call.integer(0)), "modify", landlock.WRITE_FILE)


def _whole(held: int, operation: str, right: int) -> Iterator[Act]:
    try:
        path = real_path(held)
    finally:
        os.close(held)
    if _has_name(path):
        yield Act(operation, path, right)


def _times(call: Call) -> Iterator[Act]:
    if not call.arguments[1]:
        return _changing_open(call)
    follow = not call.arguments[3] & _AT_SYMLINK_NOFOLLOW
    return _changing(call, call.integer(0), 1, follow=follow)


def _starting(call: Call, folder: int, path: int, flags: int = 0) -> Iterator[Act]:
    text = call.text(path)
    if not text and flags & _AT_EMPTY_PATH:
        yield from _whole(call.opened(folder), "execute", landlock.EXECUTE)
        return
    found = _existing(call, folder, text, follow=not flags & _AT_SYMLINK_NOFOLLOW)
    if found is None or not stat.S_ISREG(found.mode) or not found.mode & 0o111:
        return
    for file in _files_of(found.path):
        yield Act("execute", os.path.realpath(file), landlock.EXECUTE)


def _files_of(path: str) -> tuple[str, ...]:
    """Return the file and what the kernel starts for it: interpreters, the loader."""
    try:
        return tuple(started_with(path))
    except LaunchError:
        return (path,)


def _socket(call: Call, *, make: bool) -> Iterator[Act]:
    """Look at a unix socket with a path: bound it is made, connected to it is changed."""
    size = min(call.arguments[2] & _INT, addresses.MAX_SIZE)
    named = addresses.parse(call.memory(call.arguments[1], size)) if size else None
    if not isinstance(named, addresses.Name):
        return
    found = _existing(call, _HERE, named.path, follow=not make)
    if make and found is None:
        yield Act("create", _name(call, _HERE, named.path), landlock.MAKE_SOCK)
    elif not make and found is not None:
        yield Act("modify", found.path, landlock.RESOLVE_UNIX)


def _existing(call: Call, folder: int, text: bytes, *, follow: bool) -> _Object | None:
    try:
        held = _held(call, folder, text, follow=follow)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        path, mode = real_path(held), os.fstat(held).st_mode
    finally:
        os.close(held)
    if not _has_name(path):
        raise OSError  # a pipe, a socket, something that was removed: no rule is about it
    return _Object(path, mode)


def _held(call: Call, folder: int, text: bytes, *, follow: bool) -> int:
    """Open, without rights, what the path means to the caller, also through links of /proc."""
    own = _own_name(call, text)
    if own is not None:
        return os.open(own, os.O_PATH | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW))
    return call.resolve(folder, text, follow=follow)


def _own_name(call: Call, text: bytes) -> bytes | None:
    for name, real in _OWN_NAMES.items():
        if text == name or text.startswith(name + b"/"):
            return real % call.thread + text[len(name) :]
    return None


def _name(call: Call, folder: int, text: bytes) -> str:
    above, name = call.parent(folder, text)
    try:
        return f"{real_path(above).rstrip('/')}/{os.fsdecode(name)}"
    finally:
        os.close(above)


def _has_name(path: str) -> bool:
    return path.startswith("/") and not path.startswith("/memfd:") and not path.endswith(_GONE)


def _flags(call: Call, place: int) -> int:
    return call.arguments[place] & _INT


_HERE = AT_FDCWD
_FINDERS: Mapping[str, Callable[[Call], Iterator[Act]]] = {
    "bind": lambda c: _socket(c, make=True),
    "connect": lambda c: _socket(c, make=False),
    "open": lambda c: _opening(c, _HERE, 0, _flags(c, 1)),
    "openat": lambda c: _opening(c, c.integer(0), 1, _flags(c, 2)),
    "creat": lambda c: _opening(c, _HERE, 0, os.O_CREAT | os.O_WRONLY | os.O_TRUNC),
    "truncate": lambda c: _changing(c, _HERE, 0),
    "mkdir": lambda c: _new(c, _HERE, 0),
    "mkdirat": lambda c: _new(c, c.integer(0), 1),
    "mknod": lambda c: _new(c, _HERE, 0),
    "mknodat": lambda c: _new(c, c.integer(0), 1),
    "symlink": lambda c: _new(c, _HERE, 1),
    "symlinkat": lambda c: _new(c, c.integer(1), 2),
    "link": lambda c: _linking(c, (_HERE, 0), (_HERE, 1), follow=False),
    "linkat": lambda c: _linking(
        c, (c.integer(0), 1), (c.integer(2), 3), follow=bool(_flags(c, 4) & _AT_SYMLINK_FOLLOW)
    ),
    "rename": lambda c: _moving(c, (_HERE, 0), (_HERE, 1)),
    "renameat": lambda c: _moving(c, (c.integer(0), 1), (c.integer(2), 3)),
    "renameat2": lambda c: _moving(c, (c.integer(0), 1), (c.integer(2), 3), _flags(c, 4)),
    "unlink": lambda c: _doomed(c, _HERE, 0),
    "unlinkat": lambda c: _doomed(c, c.integer(0), 1),
    "rmdir": lambda c: _doomed(c, _HERE, 0),
    "execve": lambda c: _starting(c, _HERE, 0),
    "execveat": lambda c: _starting(c, c.integer(0), 1, _flags(c, 4)),
    "chmod": lambda c: _changing(c, _HERE, 0),
    "chown": lambda c: _changing(c, _HERE, 0),
    "lchown": lambda c: _changing(c, _HERE, 0, follow=False),
    "setxattr": lambda c: _changing(c, _HERE, 0),
    "lsetxattr": lambda c: _changing(c, _HERE, 0, follow=False),
    "removexattr": lambda c: _changing(c, _HERE, 0),
    "lremovexattr": lambda c: _changing(c, _HERE, 0, follow=False),
    "fchmodat": lambda c: _changing(c, c.integer(0), 1),
    "fchownat": lambda c: _changing(
        c, c.integer(0), 1, follow=not _flags(c, 4) & _AT_SYMLINK_NOFOLLOW
    ),
    "utimensat": _times,
    "fchmod": _changing_open,
    "fchown": _changing_open,
    "fsetxattr": _changing_open,
    "fremovexattr": _changing_open,
}
