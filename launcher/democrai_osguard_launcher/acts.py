"""What a waiting call would do to which objects: looked up as the caller would meet them.

For explaining and learning only: nothing is decided by what is found here, since the caller's
other threads may change names and memory at any time. A call that will fail for a reason of its
own, such as a name that does not exist, does nothing.
"""

from __future__ import annotations

import os
import stat

from . import addresses, landlock
from .caller import AT_FDCWD, Call, look_up, real_path
from .errors import LaunchError
from .program import steps_of
from .record import Record
from .sights import SIGHTS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    Place = tuple[int, int]  # a folder's descriptor, and which argument is the path

MOVE = "move"  # no operation of the contract: an object comes under the rights of another place
READ_NEW = 1 << 32  # no right of Landlock: to read what is about to be made
START = 1 << 33  # nor this: to be started itself, and not opened by the kernel to start another
_INT = 0xFFFFFFFF
_ALL_RIGHTS = READ_NEW - 1
_AT_EMPTY_PATH, _AT_SYMLINK_NOFOLLOW, _AT_SYMLINK_FOLLOW = 0x1000, 0x100, 0x400
_AT_REMOVEDIR = 0x200
_O_TMPFILE = 0o20000000
_RENAME_NOREPLACE, _RENAME_EXCHANGE = 1, 2
_GONE = " (deleted)"


class Act(Record):
    """One operation on one path, and the Landlock right that stands for it."""

    operation: str
    target: str
    right: int
    folder: str = ""  # where a rule must stand, if it cannot stand at the target itself
    # Of a move: where the object would be. `right` are those that it must not gain there.
    leads_to: str = ""


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
    if flags & os.O_PATH or flags & os.O_ACCMODE == os.O_ACCMODE:
        return  # the one needs no rule, and to open for nothing no rule is enough
    text = call.text(path)
    new = flags & os.O_CREAT and flags & os.O_EXCL
    found = _existing(call, folder, text, follow=not new and not flags & os.O_NOFOLLOW)
    if found is None:
        if flags & os.O_CREAT:
            yield from _making(call, folder, text, reads=flags & os.O_ACCMODE != os.O_WRONLY)
    elif not new and not stat.S_ISLNK(found.mode):
        yield from _using(found, flags)


def _using(found: _Object, flags: int) -> Iterator[Act]:
    folder = stat.S_ISDIR(found.mode)
    unnamed = flags & _O_TMPFILE == _O_TMPFILE
    if folder and flags & os.O_ACCMODE and not unnamed:
        return  # a folder cannot be written to
    if flags & os.O_ACCMODE != os.O_WRONLY:
        right = landlock.READ_DIR if folder and not unnamed else landlock.READ_FILE
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


def _new(call: Call, folder: int, path: int, *, slashes: bool = False) -> Iterator[Act]:
    text = call.text(path).rstrip(b"/") if slashes else call.text(path)
    if _existing(call, folder, text, follow=False) is None:
        yield Act("create", _name(call, folder, text), landlock.MAKE_REG)


def _doomed(call: Call, folder: int, path: int, *, slashes: bool = False) -> Iterator[Act]:
    text = call.text(path).rstrip(b"/") if slashes else call.text(path)
    found = _existing(call, folder, text, follow=False)
    if found is not None:
        name = _name(call, folder, text)
        yield Act("delete", name, landlock.REMOVE_FILE, _above_link(name, found))


def _above_link(name: str, found: _Object) -> str:
    """Return the folder of a link: a rule stands where a path really leads, so none at the link."""
    return os.path.dirname(name) if stat.S_ISLNK(found.mode) else ""


def _moving(call: Call, source: Place, target: Place, flags: int = 0) -> Iterator[Act]:
    """Look at a move, which is held by the rights of the two folders."""
    texts = [call.text(path) for _, path in (source, target)]
    sides = [
        (side[0], text.rstrip(b"/")) for side, text in zip((source, target), texts, strict=True)
    ]
    found = [_existing(call, *side, follow=False) for side in sides]
    if found[0] is None or (found[1] is not None and flags & _RENAME_NOREPLACE):
        return
    if any(text.endswith(b"/") for text in texts) and not stat.S_ISDIR(found[0].mode):
        return
    old, new = (_name(call, *side) for side in sides)
    yield _remove(old)
    yield _make(new)
    if found[1] is not None:  # Landlock sees its removal
        yield _remove(new)
    yield move(old, found[0].mode, new)
    if flags & _RENAME_EXCHANGE and found[1] is not None:
        yield _make(old)
        yield move(new, found[1].mode, old)


def _linking(call: Call, source: Place, target: Place, *, follow: bool) -> Iterator[Act]:
    found = _existing(call, source[0], call.text(source[1]), follow=follow)
    if found is None:
        return
    above = os.path.dirname(found.path)
    for act in _new(call, *target):
        yield _make(act.target)
        if above != os.path.dirname(act.target):  # of a folder that is only read one may link
            yield Act("read", found.path, landlock.REFER, above)
        yield move(found.path, found.mode, act.target)


def move(old: str, mode: int, new: str) -> Act:
    """Return what a move or a hard link does to an object of this mode, beside the names."""
    rights = _ALL_RIGHTS if stat.S_ISDIR(mode) else landlock.FILE_RIGHTS
    return Act(MOVE, old, rights, leads_to=new)


def _remove(name: str) -> Act:
    return Act("delete", name, landlock.REMOVE_FILE, os.path.dirname(name))


def _make(name: str) -> Act:
    return Act("create", name, landlock.MAKE_REG, os.path.dirname(name))


def _changing(
    call: Call, folder: int, path: int, *, follow: bool = True, flags: int = 0
) -> Iterator[Act]:
    text = call.text(path)
    if not text and flags & _AT_EMPTY_PATH:
        yield from _whole(call.base(folder), "modify", landlock.WRITE_FILE)
        return
    follow = follow and not flags & _AT_SYMLINK_NOFOLLOW
    found = _existing(call, folder, text, follow=follow)
    if found is not None:
        yield Act("modify", found.path, landlock.WRITE_FILE, _above_link(found.path, found))


def _looking(call: Call, name: str) -> Iterator[Act]:
    sight = SIGHTS[name]
    flags = _flags(call, sight.flags) if sight.flags is not None else 0
    folder = AT_FDCWD if sight.folder is None else call.integer(sight.folder)
    follow = sight.follows and not flags & sight.stays
    text = call.text(sight.path)
    found = _existing(call, folder, text, follow=follow) if text else None
    if found is not None and not found.path.startswith(f"/proc/{call.process()}/"):
        yield Act("read", found.path, landlock.READ_FILE | landlock.READ_DIR)


def _looker(name: str) -> Callable[[Call], Iterator[Act]]:
    return lambda call: _looking(call, name)


def _changing_open(call: Call) -> Iterator[Act]:
    yield from _whole(call.opened(call.integer(0)), "modify", landlock.WRITE_FILE)


def _whole(held: int, operation: str, right: int) -> Iterator[Act]:
    try:
        path = real_path(held)
    finally:
        os.close(held)
    if _has_name(path):
        yield Act(operation, path, right)


def _times(call: Call, flags: int = 0) -> Iterator[Act]:
    if not call.arguments[1]:
        return _changing_open(call)
    return _changing(call, call.integer(0), 1, flags=flags)


def _starting(call: Call, folder: int, path: int, flags: int = 0) -> Iterator[Act]:
    text = call.text(path)
    if not text and flags & _AT_EMPTY_PATH:
        yield from _whole(call.opened(folder), "execute", START)
        return
    found = _existing(call, folder, text, follow=not flags & _AT_SYMLINK_NOFOLLOW)
    if found is None or not stat.S_ISREG(found.mode) or not found.mode & 0o111:
        return
    for file, is_loader in _steps_of(found.path):
        yield Act("execute", os.path.realpath(file), landlock.EXECUTE if is_loader else START)


def _steps_of(path: str) -> tuple[tuple[str, bool], ...]:
    """Return the file and what the kernel starts for it: interpreters, the loader."""
    try:
        return tuple(steps_of(path))
    except LaunchError:
        return ((path, False),)


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
        held = look_up(call, folder, text, follow=follow)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        path, mode = real_path(held), os.fstat(held).st_mode
    finally:
        os.close(held)
    if not _has_name(path):
        raise OSError  # a pipe, a socket, something that was removed: no rule is about it
    return _Object(path, mode)


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
    **{name: _looker(name) for name in SIGHTS},
    "bind": lambda c: _socket(c, make=True),
    "connect": lambda c: _socket(c, make=False),
    "open": lambda c: _opening(c, _HERE, 0, _flags(c, 1)),
    "openat": lambda c: _opening(c, c.integer(0), 1, _flags(c, 2)),
    "creat": lambda c: _opening(c, _HERE, 0, os.O_CREAT | os.O_WRONLY | os.O_TRUNC),
    "truncate": lambda c: _changing(c, _HERE, 0),
    "mkdir": lambda c: _new(c, _HERE, 0, slashes=True),
    "mkdirat": lambda c: _new(c, c.integer(0), 1, slashes=True),
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
    "unlinkat": lambda c: _doomed(c, c.integer(0), 1, slashes=bool(_flags(c, 2) & _AT_REMOVEDIR)),
    "rmdir": lambda c: _doomed(c, _HERE, 0, slashes=True),
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
    "fchownat": lambda c: _changing(c, c.integer(0), 1, flags=_flags(c, 4)),
    "utime": lambda c: _changing(c, _HERE, 0),
    "utimes": lambda c: _changing(c, _HERE, 0),
    "futimesat": _times,
    "utimensat": lambda c: _times(c, _flags(c, 3)),
    "fchmod": _changing_open,
    "fchown": _changing_open,
    "fsetxattr": _changing_open,
    "fremovexattr": _changing_open,
}
