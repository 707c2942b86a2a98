"""What can be done in a folder, each act with the operations that it needs."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    Act = Callable[[Path], object]

OPERATIONS = ("read", "create", "modify", "delete", "execute")
ALSO_OPENED_BY = {"read": {"execute"}}  # the kernel reads what it starts


def _write(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags)
    os.write(descriptor, b"x")
    os.close(descriptor)


def _execute(path: Path) -> None:
    if os.fork() == 0:
        try:
            os.execv(path, [str(path)])  # noqa: S606 - the act itself
        except OSError as error:
            os._exit(error.errno or 1)
    code = os.waitstatus_to_exitcode(os.wait()[1])
    if code:
        raise OSError(code, os.strerror(code))


# Each act on a folder that holds `file`, `folder`, `link` (to file), `fifo`, `program`, and in
# which `new` is free, with the operations that it needs.
ACTS: dict[str, tuple[Act, set[str]]] = {
    "read a file": (lambda at: (at / "file").read_bytes(), {"read"}),
    "read through a link": (lambda at: (at / "link").read_bytes(), {"read"}),
    "list a folder": (lambda at: os.listdir(at / "folder"), {"read"}),
    "read a file below": (lambda at: (at / "folder/file").read_bytes(), {"read"}),
    "open a fifo to read": (
        lambda at: os.open(at / "fifo", os.O_RDONLY | os.O_NONBLOCK),
        {"read"},
    ),
    "open a fifo to write": (
        lambda at: os.open(at / "fifo", os.O_RDWR | os.O_NONBLOCK),
        {"read", "modify"},
    ),
    "list the folder itself": (os.listdir, {"read"}),
    "append": (lambda at: _write(at / "file", os.O_WRONLY | os.O_APPEND), {"modify"}),
    "overwrite": (lambda at: _write(at / "file", os.O_WRONLY | os.O_TRUNC), {"modify"}),
    "overwrite with O_CREAT": (
        lambda at: _write(at / "file", os.O_WRONLY | os.O_CREAT),
        {"modify"},
    ),
    "write through a link": (lambda at: _write(at / "link", os.O_WRONLY), {"modify"}),
    "truncate": (lambda at: os.truncate(at / "file", 0), {"modify"}),
    "empty while reading": (
        lambda at: os.open(at / "file", os.O_RDONLY | os.O_TRUNC),
        {"read", "modify"},
    ),
    "read and write": (lambda at: os.open(at / "file", os.O_RDWR), {"read", "modify"}),
    "make a folder": (lambda at: (at / "new").mkdir(), {"create"}),
    "make a link": (lambda at: (at / "new").symlink_to("/etc/shadow"), {"create"}),
    "make a fifo": (lambda at: os.mkfifo(at / "new"), {"create"}),
    "make a socket": (lambda at: os.mknod(at / "new", 0o140600), {"create"}),
    "make a file without opening it": (lambda at: os.mknod(at / "new"), {"create"}),
    "make a file to write": (
        lambda at: _write(at / "new", os.O_WRONLY | os.O_CREAT | os.O_EXCL),
        {"create"},
    ),
    "make a file with creat": (lambda at: open(at / "new", "x").close(), {"create"}),
    "make a file to read and write": (lambda at: (at / "new").open("w+"), {"create", "read"}),
    "remove a file": (lambda at: (at / "file").unlink(), {"delete"}),
    "remove a link": (lambda at: (at / "link").unlink(), {"delete"}),
    "remove a fifo": (lambda at: (at / "fifo").unlink(), {"delete"}),
    "remove a socket": (lambda at: (at / "socket").unlink(), {"delete"}),
    "remove a folder": (lambda at: (at / "empty").rmdir(), {"delete"}),
    "rename": (lambda at: (at / "file").rename(at / "new"), {"create", "delete"}),
    "hard link": (lambda at: os.link(at / "file", at / "new"), {"create"}),
    "start a program": (lambda at: _execute(at / "program"), {"execute"}),
}

METADATA: dict[str, Act] = {
    "chmod": lambda at: (at / "file").chmod(0o777),
    "fchmod": lambda at: os.fchmod(os.open(at / "file", os.O_RDONLY), 0o777),
    "chown": lambda at: os.chown(at / "file", os.getuid(), os.getgid()),
    "lchown": lambda at: os.lchown(at / "link", os.getuid(), os.getgid()),
    "fchown": lambda at: os.fchown(os.open(at / "file", os.O_RDONLY), os.getuid(), os.getgid()),
    "utime": lambda at: os.utime(at / "file", (1, 1)),
    "futime": lambda at: os.utime(os.open(at / "file", os.O_RDONLY), (1, 1)),
    "setxattr": lambda at: os.setxattr(at / "file", "user.x", b"x"),
    "fsetxattr": lambda at: os.setxattr(os.open(at / "file", os.O_RDONLY), "user.x", b"x"),
    "removexattr": lambda at: os.removexattr(at / "file", "user.y"),
}


def lay_out(at: Path) -> Path:
    """Make the folder that the acts expect."""
    (at / "folder").mkdir(parents=True)
    (at / "empty").mkdir()
    (at / "file").write_text("content")
    (at / "folder/file").write_text("content")
    (at / "link").symlink_to("file")
    with contextlib.suppress(OSError):  # where there are none, the acts on them fail, and no other
        os.setxattr(at / "file", "user.y", b"y")
    os.mkfifo(at / "fifo")
    os.mknod(at / "socket", 0o140600)
    # A copy, since a link would be the granted file itself.
    (at / "program").write_bytes(Path("/usr/bin/true").read_bytes())
    (at / "program").chmod(0o755)
    return at
