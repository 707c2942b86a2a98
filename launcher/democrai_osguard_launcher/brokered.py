"""The calls that the broker completes, one function for each kind of effect.

A handler answers with a value or a descriptor, raises OSError to refuse, or GoOn to leave the call
to the kernel. Only calls that Landlock sees may go on.
"""

from __future__ import annotations

import errno
import os
import stat
import struct

from . import kernel
from .caller import AT_FDCWD, Call, real_path, told_path
from .record import Record
from .seccomp import IDENTITY_CALLS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .broker import Broker
    from .connections import Connections

_AT_REMOVEDIR = 0x200
_MOST_LINKS = 40  # the kernel's own limit
_FOLDER_FLAGS = os.O_PATH | os.O_CLOEXEC | os.O_DIRECTORY
_AT_SYMLINK_NOFOLLOW, _AT_EMPTY_PATH = 0x100, 0x1000
_SET_ID_BITS = 0o6000
_MODE_BITS = 0o1777
_INT = 0xFFFFFFFF
_XATTR_NAME_MAX, _XATTR_SIZE_MAX = 255, 65536
_MICROSECONDS = 10**6
_TIMES = struct.Struct("<qQqQ")  # two times, in seconds and the rest
_FINE, _PLAIN = struct.Struct("<qqqq"), struct.Struct("<qq")  # with microseconds, and without
# What a caller may ask of a file that the broker opens for it. 0o100000 is O_LARGEFILE, which
# Python calls 0 where every file is large.
OPEN_FLAGS = (
    os.O_ACCMODE | os.O_APPEND | os.O_NONBLOCK | os.O_SYNC | os.O_NOCTTY | os.O_CLOEXEC
    | os.O_CREAT | os.O_EXCL | os.O_TRUNC | os.O_NOFOLLOW | 0o100000
)  # fmt: skip
_OWN_WANTS = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
_NEW = os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC  # what the broker makes did not exist


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


def place(call: Call, folder: int, path: int, *, slashes: bool = False) -> Place:
    """Open the folder of the name; where that fails the kernel shall find the same fault."""
    return _placed(call, folder, _text(call, path), slashes=slashes)


def _text(call: Call, path: int) -> bytes:
    try:
        return call.text(path)
    except OSError as error:
        raise _left_to_the_kernel(error) from error


def _left_to_the_kernel(error: OSError) -> Exception:
    """Return what to raise: only a want of the broker's own is not to be found again."""
    return error if error.errno in _OWN_WANTS else GoOn()


def _placed(call: Call, folder: int, text: bytes, *, slashes: bool = False) -> Place:
    try:
        above, name = call.parent(folder, text, slashes=slashes)
    except OSError as error:
        raise _left_to_the_kernel(error) from error
    return _in_folder(above, name)


def _in_folder(folder: int, name: bytes) -> Place:
    path = told_path(folder)
    return Place(folder, name, f"{path.rstrip('/')}/{os.fsdecode(name)}")


def _folder(call: Call, folder: int, path: int) -> Place:
    return place(call, folder, path, slashes=True)


def _create(broker: Broker, call: Call, at: tuple[int, int], flags: int, mode: int) -> Descriptor:
    """Create a file in a folder, by a path in an argument."""
    folder, text = at[0], _text(call, at[1])
    made = _create_at_once(broker, call, text, flags, mode)
    return made or _create_beyond(broker, call, _placed(call, folder, text), flags, mode)


def _create_at_once(
    broker: Broker, call: Call, text: bytes, flags: int, mode: int
) -> Descriptor | None:
    """Create a file with one call of the kernel; None where that takes a closer look.

    Where no link is on the way the text itself says where it leads, and the kernel sees to that.
    """
    if flags & ~OPEN_FLAGS or mode & _SET_ID_BITS or text[:1] != b"/" or b"/.." in text:
        return None
    path = os.fsdecode(text)
    if not broker.allows("create", path):
        return None
    if flags & os.O_ACCMODE != os.O_WRONLY and not broker.allows("read", path):
        return None
    mode &= _MODE_BITS & ~broker.umask_of(call)
    try:
        made = kernel.open_without_links(text, flags | _NEW, mode)
    except OSError:
        return None
    return Descriptor(made, bool(flags & os.O_CLOEXEC))


def _create_beyond(broker: Broker, call: Call, at: Place, flags: int, mode: int) -> Descriptor:
    """Create a file where the name leads, by way of links to nothing, as the kernel would."""
    for _ in range(_MOST_LINKS):
        try:
            return _create_here(broker, call, at, flags, mode)
        except GoOn:
            if flags & (os.O_EXCL | os.O_NOFOLLOW):
                raise
            beyond = _beyond(at)
        finally:
            os.close(at.folder)
        at = beyond
    os.close(at.folder)
    raise GoOn


def _beyond(at: Place) -> Place:
    """Return where a link leads; what is none is left to the kernel."""
    try:
        if os.fstat(at.folder).st_mode & stat.S_ISVTX:
            raise GoOn  # the kernel looks at whose link that is
        head, slash, name = os.fsencode(os.readlink(at.name, dir_fd=at.folder)).rpartition(b"/")
        if name in {b"", b".", b".."}:
            raise GoOn
        above = head or slash or b"."
        folder = kernel.open_without_magic_links(at.folder, above, _FOLDER_FLAGS)
    except OSError as error:
        raise GoOn from error
    return _in_folder(folder, name)


def _create_here(broker: Broker, call: Call, at: Place, flags: int, mode: int) -> Descriptor:
    """Create a file for a caller that may create, and not change what exists."""
    try:
        if flags & ~OPEN_FLAGS or mode & _SET_ID_BITS or not broker.allows_at("create", at):
            raise GoOn
        if flags & os.O_ACCMODE != os.O_WRONLY and not broker.allows_at("read", at):
            _check_that_it_exists(at)
            raise GoOn
        mode &= _MODE_BITS & ~broker.umask_of(call)
        made = os.open(at.name, flags | _NEW, mode, dir_fd=at.folder)
    except FileExistsError as error:
        raise GoOn from error  # a matter of modify, then, and Landlock knows that
    return Descriptor(made, bool(flags & os.O_CLOEXEC))


def _check_that_it_exists(at: Place) -> None:
    """Refuse what is not there: the kernel would make it, and only then refuse to open it."""
    try:
        os.stat(at.name, dir_fd=at.folder, follow_symlinks=False)
    except FileNotFoundError as error:
        raise _refusal(errno.EACCES) from error


def _make_folder(broker: Broker, call: Call, at: Place, mode: int) -> int:
    try:
        if not broker.allows_at("create", at):
            raise GoOn
        os.mkdir(at.name, mode & _MODE_BITS & ~broker.umask_of(call), dir_fd=at.folder)
    finally:
        os.close(at.folder)
    return 0


def _make_node(broker: Broker, call: Call, at: Place, mode: int) -> int:
    """Make a file without opening it, a fifo or a socket; nobody who is confined makes a device."""
    try:
        plain = stat.S_IFMT(mode) in {0, stat.S_IFREG, stat.S_IFIFO, stat.S_IFSOCK}
        if not plain or mode & _SET_ID_BITS or not broker.allows_at("create", at):
            raise GoOn
        kind = stat.S_IFMT(mode) or stat.S_IFREG
        os.mknod(at.name, kind | mode & _MODE_BITS & ~broker.umask_of(call), dir_fd=at.folder)
    finally:
        os.close(at.folder)
    return 0


def _make_link(broker: Broker, call: Call, at: Place, content: int) -> int:
    try:
        if not broker.allows_at("create", at):
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
        if not broker.allows_at("delete", at):
            raise GoOn
        broker.umask_of(call)
        (os.rmdir if folder else os.unlink)(at.name, dir_fd=at.folder)
    finally:
        os.close(at.folder)
    return 0


def _change(broker: Broker, call: Call, held: int, act: Callable[[int], object]) -> int:
    """Let `act` change the metadata of an open object that a modify rule covers.

    It reads nothing more of the caller, whose number may be another's by then.
    """
    try:
        broker.umask_of(call)
        if not broker.covers("modify", held) and not _has_no_name(broker, held):
            raise _refusal(errno.EPERM)
        act(held)
    finally:
        os.close(held)
    return 0


def _has_no_name(broker: Broker, held: int) -> bool:
    """Tell whether it is a file without any name, made or removed where a rule covers names."""
    return not os.fstat(held).st_nlink and broker.allows("modify", real_path(held))


def _own_path(held: int) -> str:
    return f"/proc/self/fd/{held}"


def _set_mode(broker: Broker, call: Call, held: int, mode: int) -> int:
    def act(held: int) -> None:
        if mode & _SET_ID_BITS:  # such a program lends its owner's rights to whoever starts it
            raise _refusal(errno.EPERM)
        os.chmod(_own_path(held), mode & _MODE_BITS)

    return _change(broker, call, held, act)


def _set_owner(broker: Broker, call: Call, held: int, place: int) -> int:
    user, group = call.integer(place), call.integer(place + 1)
    return _change(broker, call, held, lambda held: os.chown(_own_path(held), user, group))


def _set_times(
    broker: Broker, call: Call, times: int, find: Callable[[], int], layout: struct.Struct = _TIMES
) -> int:
    """Set both times, which an argument points to, of what is found; no pointer means now."""
    wanted = _read_times(call, call.arguments[times], layout) if call.arguments[times] else None
    return _change(broker, call, find(), lambda held: kernel.set_times(held, wanted))


def _read_times(call: Call, address: int, layout: struct.Struct) -> bytes:
    """Read two times, and return them as the newest call has them: with nanoseconds."""
    content = call.memory(address, layout.size)
    if layout is _TIMES:
        return content
    found = layout.unpack(content)
    accessed, rest, modified, rest_modified = (
        found if layout is _FINE else (found[0], 0, found[1], 0)
    )
    if not (0 <= rest < _MICROSECONDS and 0 <= rest_modified < _MICROSECONDS):
        raise _refusal(errno.EINVAL)
    return _TIMES.pack(accessed, rest * 1000, modified, rest_modified * 1000)


def _set_attribute(broker: Broker, call: Call, find: Callable[[], int]) -> int:
    name, size, flags = _attribute_name(call), call.arguments[3], call.integer(4)
    if size > _XATTR_SIZE_MAX:
        raise _refusal(errno.E2BIG)
    value = call.memory(call.arguments[2], size) if size else b""
    return _change(
        broker, call, find(), lambda held: os.setxattr(_own_path(held), name, value, flags)
    )


def _remove_attribute(broker: Broker, call: Call, find: Callable[[], int]) -> int:
    name = _attribute_name(call)
    return _change(broker, call, find(), lambda held: os.removexattr(_own_path(held), name))


def _attribute_name(call: Call) -> bytes:
    name = call.text(1)
    # The other namespaces carry capabilities, labels and lists of rights.
    if not name.startswith(b"user.") or len(name) > _XATTR_NAME_MAX:
        raise _refusal(errno.EOPNOTSUPP)
    return name


def _at(call: Call, *, follow: bool = True) -> int:
    return call.resolve(AT_FDCWD, call.text(0), follow=follow)


def _beside(call: Call, flags: int = 0) -> int:
    text = call.text(1)
    if not text and flags & _AT_EMPTY_PATH:
        return call.base(call.integer(0))
    return call.resolve(call.integer(0), text, follow=not flags & _AT_SYMLINK_NOFOLLOW)


def _beside_or_held(call: Call, flags: int = 0) -> int:
    return _beside(call, flags) if call.arguments[1] else _held(call)


def _held(call: Call) -> int:
    return call.opened(call.integer(0))


def _refusal(code: int) -> OSError:
    return OSError(code, os.strerror(code))


def _open(broker: Broker, call: Call) -> Descriptor:
    flags, mode = call.arguments[1] & _INT, call.arguments[2]
    return _create(broker, call, (AT_FDCWD, 0), flags, mode)


def _openat(broker: Broker, call: Call) -> Descriptor:
    flags, mode = call.arguments[2] & _INT, call.arguments[3]
    return _create(broker, call, (call.integer(0), 1), flags, mode)


def _creat(broker: Broker, call: Call) -> Descriptor:
    flags = os.O_CREAT | os.O_WRONLY | os.O_TRUNC
    return _create(broker, call, (AT_FDCWD, 0), flags, call.arguments[1])


def _unlinkat(broker: Broker, call: Call) -> int:
    folder = bool(call.arguments[2] & _AT_REMOVEDIR)
    at = place(call, call.integer(0), 1, slashes=folder)
    return _remove(broker, call, at, folder=folder)


def _with_address(broker: Broker) -> Connections:
    if broker.connections is None:
        raise _refusal(errno.EPERM)
    return broker.connections


def _mask_changes(broker: Broker, call: Call) -> int:
    broker.standing.mask_changes(call.thread, call.arguments[0])
    raise GoOn


def _identity_changes(broker: Broker, _call: Call) -> int:
    broker.standing.identity_changes()
    raise GoOn


def _narrowing_begins(broker: Broker, call: Call) -> int:
    broker.narrowing.begins(call.thread)
    raise GoOn


HANDLERS: Mapping[str, Callable[[Broker, Call], int | Descriptor | None]] = {
    "connect": lambda b, c: _with_address(b).connect(c),
    "listen": lambda b, c: _with_address(b).listen(c),
    "sendto": lambda b, c: _with_address(b).sendto(c),
    "sendmsg": lambda b, c: _with_address(b).sendmsg(c),
    "sendmmsg": lambda b, c: _with_address(b).sendmmsg(c),
    "open": _open,
    "openat": _openat,
    "creat": _creat,
    "mkdir": lambda b, c: _make_folder(b, c, _folder(c, AT_FDCWD, 0), c.arguments[1]),
    "mkdirat": lambda b, c: _make_folder(b, c, _folder(c, c.integer(0), 1), c.arguments[2]),
    "mknod": lambda b, c: _make_node(b, c, place(c, AT_FDCWD, 0), c.arguments[1] & _INT),
    "mknodat": lambda b, c: _make_node(b, c, place(c, c.integer(0), 1), c.arguments[2] & _INT),
    "symlink": lambda b, c: _make_link(b, c, place(c, AT_FDCWD, 1), 0),
    "symlinkat": lambda b, c: _make_link(b, c, place(c, c.integer(1), 2), 0),
    "unlink": lambda b, c: _remove(b, c, place(c, AT_FDCWD, 0), folder=False),
    "rmdir": lambda b, c: _remove(b, c, _folder(c, AT_FDCWD, 0), folder=True),
    "unlinkat": _unlinkat,
    "chmod": lambda b, c: _set_mode(b, c, _at(c), c.arguments[1]),
    "fchmod": lambda b, c: _set_mode(b, c, _held(c), c.arguments[1]),
    "fchmodat": lambda b, c: _set_mode(b, c, _beside(c), c.arguments[2]),
    "chown": lambda b, c: _set_owner(b, c, _at(c), 1),
    "lchown": lambda b, c: _set_owner(b, c, _at(c, follow=False), 1),
    "fchown": lambda b, c: _set_owner(b, c, _held(c), 1),
    "fchownat": lambda b, c: _set_owner(b, c, _beside(c, c.arguments[4]), 2),
    "utime": lambda b, c: _set_times(b, c, 1, lambda: _at(c), _PLAIN),
    "utimes": lambda b, c: _set_times(b, c, 1, lambda: _at(c), _FINE),
    "futimesat": lambda b, c: _set_times(b, c, 2, lambda: _beside_or_held(c), _FINE),
    "utimensat": lambda b, c: _set_times(b, c, 2, lambda: _beside_or_held(c, c.arguments[3])),
    "setxattr": lambda b, c: _set_attribute(b, c, lambda: _at(c)),
    "lsetxattr": lambda b, c: _set_attribute(b, c, lambda: _at(c, follow=False)),
    "fsetxattr": lambda b, c: _set_attribute(b, c, lambda: _held(c)),
    "removexattr": lambda b, c: _remove_attribute(b, c, lambda: _at(c)),
    "lremovexattr": lambda b, c: _remove_attribute(b, c, lambda: _at(c, follow=False)),
    "fremovexattr": lambda b, c: _remove_attribute(b, c, lambda: _held(c)),
    "umask": _mask_changes,
    "landlock_restrict_self": _narrowing_begins,
    **dict.fromkeys(IDENTITY_CALLS, _identity_changes),
}
