"""Ways to change what is outside, or what may only be read."""

from __future__ import annotations

import ctypes
import fcntl
import os
import struct
from typing import TYPE_CHECKING

from .ground import call

if TYPE_CHECKING:
    from collections.abc import Callable

    from .ground import Technique, World


def by_opening_to_write(w: World) -> None:
    os.open(w.secret, os.O_WRONLY)


def by_emptying_while_reading(w: World) -> None:
    os.open(w.secret, os.O_RDONLY | os.O_TRUNC)


def by_opening_for_nothing(w: World) -> None:
    os.open(w.secret, os.O_ACCMODE)  # neither reads nor writes, and a driver is opened all the same


def by_an_unnamed_file(w: World) -> None:
    os.open(w.outside, os.O_TMPFILE | os.O_RDWR)


def by_an_unnamed_file_that_lends(w: World) -> None:
    descriptor = os.open(w.inside, os.O_TMPFILE | os.O_RDWR, 0o6755)
    follow = 0x400
    source, target = f"/proc/self/fd/{descriptor}".encode(), w.inside / "lends"
    call(265, -100, source, -100, os.fsencode(target), follow)
    if not target.stat().st_mode & 0o6000:
        raise PermissionError(1, "it lends nothing")


def with_fchmodat2(w: World) -> None:
    call(452, -100, os.fsencode(w.secret), 0o777, 0)


def with_setxattrat(w: World) -> None:
    value = ctypes.create_string_buffer(b"x", 1)
    arguments = ctypes.create_string_buffer(struct.pack("PII", ctypes.addressof(value), 1, 0), 16)
    call(463, -100, os.fsencode(w.secret), 0, b"user.x", arguments, 16)


def with_file_setattr(w: World) -> None:
    attributes = ctypes.create_string_buffer(struct.pack("QIIII", 0x40, 0, 0, 0, 0), 24)
    call(469, -100, os.fsencode(w.secret), attributes, 24, 0)


def readable(w: World) -> int:
    """Open a file that reading was granted for, and nothing else."""
    return os.open(w.inside.parent / "readable/file", os.O_RDONLY)


def with_inode_flags(w: World) -> None:
    nodump = 0x40
    fcntl.ioctl(readable(w), 0x40086602, struct.pack("L", nodump))


def with_a_generation(number: int) -> Callable[[World], object]:
    return lambda w: fcntl.ioctl(readable(w), number, struct.pack("l", 4711))


def by_a_device(w: World) -> None:
    os.mknod(w.inside / "zero", 0o20666, os.makedev(1, 5))


def by_a_whiteout(w: World) -> None:
    (w.inside / "file").write_text("x")
    whiteout = 4
    source, target = os.fsencode(w.inside / "file"), os.fsencode(w.inside / "other")
    call(316, -100, source, -100, target, whiteout)


def open_to_write(path: str) -> Callable[[World], object]:
    return lambda w: os.open(path.format(victim=w.victim), os.O_WRONLY)


CHANGING: dict[str, Technique] = {
    "write a file": (by_opening_to_write, True),
    "truncate a file": (lambda w: os.truncate(w.secret, 0), True),
    "empty a file while reading": (by_emptying_while_reading, True),
    "open a file for nothing": (by_opening_for_nothing, True),
    "make an unnamed file": (by_an_unnamed_file, True),
    "make an unnamed file that lends rights": (by_an_unnamed_file_that_lends, True),
    "remove a file": (lambda w: w.secret.unlink(), True),
    "rename a file": (lambda w: w.secret.rename(w.outside / "other"), True),
    "make a file": (lambda w: (w.outside / "new").write_text("x"), True),
    "make a folder": (lambda w: (w.outside / "new").mkdir(), True),
    "make a link": (lambda w: (w.outside / "new").symlink_to("/"), True),
    "make a fifo": (lambda w: os.mkfifo(w.outside / "new"), True),
    "make a device": (by_a_device, False),
    "make a whiteout": (by_a_whiteout, False),
    "chmod": (lambda w: w.secret.chmod(0o777), True),
    "chmod with fchmodat2": (with_fchmodat2, True),
    "chmod a descriptor that reads": (lambda w: os.fchmod(readable(w), 0o777), True),
    "chown": (lambda w: os.chown(w.secret, os.getuid(), os.getgid()), True),
    "chown a descriptor that reads": (
        lambda w: os.fchown(readable(w), os.getuid(), os.getgid()),
        True,
    ),
    "utime": (lambda w: os.utime(w.secret, (1, 1)), True),
    "utime of a descriptor that reads": (lambda w: os.utime(readable(w), (1, 1)), True),
    "setxattr": (lambda w: os.setxattr(w.secret, "user.x", b"x"), True),
    "setxattr of a descriptor that reads": (
        lambda w: os.setxattr(readable(w), "user.x", b"x"),
        True,
    ),
    "setxattrat": (with_setxattrat, True),
    "file_setattr": (with_file_setattr, True),
    "inode flags of a descriptor that reads": (with_inode_flags, True),
    "generation of a descriptor that reads": (with_a_generation(0x40087602), True),
    "generation by ext4's number": (with_a_generation(0x40086604), True),
    "write own memory file": (open_to_write("/proc/self/mem"), True),
    "write another's adjustments": (open_to_write("/proc/{victim}/oom_score_adj"), True),
    "write kernel settings": (open_to_write("/proc/sys/kernel/core_pattern"), False),
    "write to the kernel's log": (open_to_write("/dev/kmsg"), False),
    "open a disk": (lambda _: os.open("/dev/vda", os.O_RDONLY), False),
}
