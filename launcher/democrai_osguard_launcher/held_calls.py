"""What the broker does itself, once a person has approved it, and otherwise leaves to Landlock."""

from __future__ import annotations

import os
import stat

from .brokered import HANDLERS, OPEN_FLAGS, Descriptor, GoOn, Place, place
from .caller import AT_FDCWD, Call, real_path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .broker import Broker

_INT = 0xFFFFFFFF
_RENAME_NOREPLACE = 1
_FLAGS = OPEN_FLAGS | os.O_DIRECTORY


def _open(broker: Broker, call: Call, name: str, at: tuple[int, int], flags: int) -> Descriptor:
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


def _open_existing(broker: Broker, call: Call, held: int, flags: int) -> Descriptor:
    """Open the file or folder that was found; a device or a fifo could keep us waiting."""
    try:
        mode = os.fstat(held).st_mode
        if flags & ~_FLAGS or not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            raise GoOn
        if not all(broker.allows(each, real_path(held)) for each in _needed(flags)):
            raise GoOn
        broker.umask_of(call)
        again = flags & ~(os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW) | os.O_CLOEXEC
        opened = os.open(f"/proc/self/fd/{held}", again)
    finally:
        os.close(held)
    return Descriptor(opened, bool(flags & os.O_CLOEXEC))


def _needed(flags: int) -> tuple[str, ...]:
    reads = () if flags & os.O_ACCMODE == os.O_WRONLY else ("read",)
    writes = flags & os.O_ACCMODE or flags & os.O_TRUNC
    return (*reads, "modify") if writes else reads


def _truncate(broker: Broker, call: Call) -> int:
    held = _found(call, AT_FDCWD, 0, 0)
    try:
        if not stat.S_ISREG(os.fstat(held).st_mode) or not broker.allows("modify", real_path(held)):
            raise GoOn
        broker.umask_of(call)
        os.truncate(f"/proc/self/fd/{held}", call.arguments[1])
    finally:
        os.close(held)
    return 0


def _rename(
    broker: Broker, call: Call, folders: tuple[int, int], paths: tuple[int, int], flags: int
) -> int:
    old = place(call, folders[0], paths[0])
    try:
        new = place(call, folders[1], paths[1])
        try:
            _move(broker, call, old, new, flags)
        finally:
            os.close(new.folder)
    finally:
        os.close(old.folder)
    return 0


def _move(broker: Broker, call: Call, old: Place, new: Place, flags: int) -> None:
    exists = os.path.lexists(new.path)
    needed = [
        ("delete", old.path),
        ("create", new.path),
        *([("delete", new.path)] if exists else []),
    ]
    if flags & ~_RENAME_NOREPLACE or (exists and flags):
        raise GoOn
    if not all(broker.allows(*each) for each in needed):
        raise GoOn
    broker.umask_of(call)
    os.rename(old.name, new.name, src_dir_fd=old.folder, dst_dir_fd=new.folder)


_HERE = AT_FDCWD
HELD_HANDLERS: Mapping[str, Callable[[Broker, Call], int | Descriptor]] = {
    "open": lambda b, c: _open(b, c, "open", (_HERE, 0), c.arguments[1] & _INT),
    "openat": lambda b, c: _open(b, c, "openat", (c.integer(0), 1), c.arguments[2] & _INT),
    "creat": lambda b, c: _open(b, c, "creat", (_HERE, 0), os.O_CREAT | os.O_WRONLY | os.O_TRUNC),
    "truncate": _truncate,
    "rename": lambda b, c: _rename(b, c, (_HERE, _HERE), (0, 1), 0),
    "renameat": lambda b, c: _rename(b, c, (c.integer(0), c.integer(2)), (1, 3), 0),
    "renameat2": lambda b, c: _rename(
        b, c, (c.integer(0), c.integer(2)), (1, 3), c.arguments[4] & _INT
    ),
}
