"""Acts on a small tree, for doing the same one free, guarded and confined."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from typing import TYPE_CHECKING

from democrai_osguard.errors import OsGuardError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

TRUE = os.path.realpath("/bin/true")
DONE, REFUSED = "done", "refused"
_REFUSALS = {errno.EACCES, errno.EPERM, errno.EXDEV}


def build(at: Path) -> None:
    """Lay out the tree that every act begins with."""
    for folder in ("in/sub", "in/empty", "out/sub"):
        (at / folder).mkdir(parents=True)
    for file in ("in/file", "in/sub/file", "out/file"):
        (at / file).write_text(file)
    (at / "in/link").symlink_to("file")
    (at / "in/away").symlink_to("../out/file")
    (at / "in/road").symlink_to("../out")
    shutil.copy(TRUE, at / "in/program")


def picture(at: Path) -> dict[str, object]:
    """Describe everything in the tree but times, of which only the one that an act sets counts."""
    return {str(path.relative_to(at)): _described(path) for path in sorted(at.rglob("*"))}


def _described(path: Path) -> tuple[object, ...]:
    status = path.lstat()
    if stat.S_ISLNK(status.st_mode):
        return ("link", os.readlink(path))
    attributes = [(name, os.getxattr(path, name)) for name in os.listxattr(path)]
    content = path.read_bytes() if stat.S_ISREG(status.st_mode) else b""
    return (status.st_mode, status.st_nlink, attributes, content, status.st_mtime == 1)


def _open(path: str, flags: int) -> None:
    os.close(os.open(path, flags | os.O_NONBLOCK, 0o644))


def _using(mode: str) -> Callable[[str], object]:
    def use(path: str) -> None:
        with open(path, f"{mode}b") as file:
            if "r" in mode or "+" in mode:
                file.read()
            if mode != "r":
                file.write(b"x")

    return use


def _start(path: str) -> None:
    child = os.posix_spawn(path, [path], {})
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code:
        raise OSError(errno.ENOEXEC, f"ended with {code}")


# Functions of `os` are looked up when they are called: the guard replaces them.
SINGLE: dict[str, Callable[[str], object]] = {
    **{f"open {mode}": _using(mode) for mode in ("r", "w", "a", "x", "r+", "w+", "x+", "a+")},
    "open to empty": lambda path: _open(path, os.O_RDONLY | os.O_TRUNC),
    "open or create": lambda path: _open(path, os.O_WRONLY | os.O_CREAT),
    "open or create to read": lambda path: _open(path, os.O_RDONLY | os.O_CREAT),
    "list": lambda path: os.listdir(path),  # noqa: PLW0108
    "scan": lambda path: list(os.scandir(path)),
    "make folder": lambda path: os.mkdir(path),  # noqa: PLW0108
    "remove folder": lambda path: os.rmdir(path),  # noqa: PLW0108
    "unlink": lambda path: os.unlink(path),  # noqa: PLW0108
    "truncate": lambda path: os.truncate(path, 1),
    "change mode": lambda path: os.chmod(path, 0o700),
    "change owner": lambda path: os.chown(path, os.getuid(), os.getgid()),
    "change times": lambda path: os.utime(path, (1, 1)),
    "set attribute": lambda path: os.setxattr(path, "user.x", b"x"),
    "make link": lambda path: os.symlink("anything", path),
    "make fifo": lambda path: os.mkfifo(path),  # noqa: PLW0108
    "make node": lambda path: os.mknod(path),  # noqa: PLW0108
    "start": _start,
    "stat": lambda path: os.stat(path),  # noqa: PLW0108
    "lstat": lambda path: os.lstat(path),  # noqa: PLW0108
    "read link": lambda path: os.readlink(path),  # noqa: PLW0108
    "ask for access": lambda path: os.access(path, os.R_OK),
    "enter": lambda path: os.chdir(path),  # noqa: PLW0108
}
# From the first path to the second.
DOUBLE: dict[str, Callable[[str, str], object]] = {
    "rename": lambda source, target: os.rename(source, target),  # noqa: PLW0108
    "replace": lambda source, target: os.replace(source, target),  # noqa: PLW0108
    "hard link": lambda source, target: os.link(source, target),  # noqa: PLW0108
}


def perform(act: str, paths: tuple[str, ...]) -> str:
    """Do it, and say in one word what came of it: done, refused, or the name of another error."""
    try:
        if act in SINGLE:
            SINGLE[act](paths[0])
        else:
            DOUBLE[act](*paths)
    except OsGuardError:
        return REFUSED
    except OSError as error:
        return REFUSED if error.errno in _REFUSALS else errno.errorcode[error.errno or 0]
    return DONE
