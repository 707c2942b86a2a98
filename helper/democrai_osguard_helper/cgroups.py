"""The helper's own part of the cgroup tree: one folder per instance, one box per sandbox.

Boxes have random names and are never made twice. Nothing here takes a path from a peer.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import secrets
import sys
from dataclasses import dataclass
from typing import Final

_MOUNTINFO: Final = "/proc/self/mountinfo"
PREFIX: Final = "democrai-osguard-"
ID_BYTES: Final = 6
_PASSABLE: Final = 0o711
_BOX: Final = re.compile(rf"/{PREFIX}[a-z0-9]{{1,8}}/[0-9a-f]{{{2 * ID_BYTES}}}(?:/|$)")


class NoCgroups(Exception):
    """There is no cgroup v2 tree to work in."""


@dataclass(frozen=True, slots=True)
class Box:
    """The cgroup of one sandbox."""

    name: str  # twelve hexadecimal digits
    path: str  # where its folder is
    relative: str  # the same below the root of the v2 tree, as xt_cgroup wants it

    def identity(self) -> int:
        """Return the kernel's number for the cgroup; raise OSError when it is gone."""
        return os.stat(self.path).st_ino

    def identities(self) -> list[int]:
        """Return the numbers of this cgroup and of those below it."""
        found = []
        for folder, _, _ in os.walk(self.path):
            with contextlib.suppress(FileNotFoundError):  # one may go while we look
                found.append(os.stat(folder).st_ino)
        return found

    def is_still(self, identity: int) -> bool:
        """Tell whether this is the cgroup of that number, not one made again in its place."""
        try:
            return self.identity() == identity
        except OSError:
            return False

    def exists(self) -> bool:
        """Tell whether the folder is there."""
        return os.path.isdir(self.path)

    def move(self, pid: int) -> None:
        """Move a process in; raise ProcessLookupError when it has ended."""
        # A buffered file would swallow ESRCH: one write, unbuffered.
        self._write("cgroup.procs", str(pid))

    def populated(self) -> bool:
        """Tell whether a process lives in the box or below it."""
        return "populated 1" in self._read("cgroup.events")

    def members(self) -> list[int]:
        """Return the processes in the box itself."""
        return [int(line) for line in self._read("cgroup.procs").split()]

    def freeze(self) -> None:
        """Stop every process inside."""
        self._write("cgroup.freeze", "1")

    def thaw(self) -> None:
        """Let them run again."""
        self._write("cgroup.freeze", "0")

    def kill(self) -> None:
        """End every process inside."""
        self._write("cgroup.kill", "1")

    def remove(self) -> bool:
        """Remove the box and empty folders below it; tell whether it is gone."""
        for folder, _, _ in os.walk(self.path, topdown=False):
            try:
                os.rmdir(folder)
            except FileNotFoundError:
                continue
            except OSError:
                return False
        return True

    def _read(self, name: str) -> str:
        with open(f"{self.path}/{name}", encoding="ascii") as file:
            return file.read()

    def _write(self, name: str, text: str) -> None:
        descriptor = os.open(f"{self.path}/{name}", os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(descriptor, text.encode())
        finally:
            os.close(descriptor)


class Tree:
    """The folder of one instance."""

    def __init__(self, mount: str, instance: str) -> None:
        self.mount = mount
        self.name = PREFIX + instance
        self.path = f"{mount}/{self.name}"

    def create(self) -> None:
        """Make the folder, which all may pass, and only root opens: who can open it can lock it.

        The root of the tree is writable by nobody, so that this needs CAP_DAC_OVERRIDE; what is
        made below needs none. Under systemd a first step with more rights makes the folder.
        """
        os.makedirs(self.path, mode=_PASSABLE, exist_ok=True)
        os.chmod(self.path, _PASSABLE)  # it may be there from before

    def claim(self) -> int:
        """Lock the folder for this process; raise OSError while another helper has it."""
        descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(descriptor)
            raise OSError(error.errno, "another helper runs this instance", self.name) from error
        return descriptor

    def box(self, name: str) -> Box:
        """Return the box of this name, whether it exists or not."""
        return Box(name, f"{self.path}/{name}", f"{self.name}/{name}")

    def new_box(self) -> Box:
        """Make a box with a name that was never used."""
        box = self.box(secrets.token_hex(ID_BYTES))
        os.mkdir(box.path, 0o755)
        return box

    def boxes(self) -> tuple[Box, ...]:
        """Return the boxes that exist."""
        with os.scandir(self.path) as entries:
            return tuple(self.box(entry.name) for entry in entries if entry.is_dir())

    def root(self) -> Box:
        """Return the root of the tree, which belongs to nobody's sandbox."""
        return Box("", self.mount, "")

    def at(self, path: str) -> Box:
        """Return the cgroup of this path, wherever in the tree it is: a process came from there.

        Raise OSError for one outside of what we see of the tree.
        """
        if not path.startswith("/") or ".." in path.split("/"):
            raise FileNotFoundError(errno.ENOENT, "a cgroup that is not to be seen from here", path)
        return Box("", f"{self.mount}{path.rstrip('/')}", path.strip("/"))

    def home(self) -> str:
        """Return the folder of the cgroup in which this process is."""
        with open("/proc/self/cgroup", encoding="utf-8") as file:
            return self.at(place(file.read())).path

    def remove(self) -> None:
        """Remove the folder when no box is left, unless others made it for us."""
        with contextlib.suppress(PermissionError):
            os.rmdir(self.path)


def find_mount(mountinfo: str | None = None) -> str:
    """Return where cgroup v2 is mounted, at the root or beside v1; raise NoCgroups elsewhere."""
    for line in (mountinfo if mountinfo is not None else _mountinfo()).splitlines():
        before, _, after = line.partition(" - ")
        if after.split(" ", 1)[0] == "cgroup2":
            return _unescaped(before.split(" ")[4])
    raise NoCgroups("no cgroup v2 is mounted on this host")


def inside_sandbox(membership: str) -> bool:
    """Tell from the text of /proc/<pid>/cgroup whether the process is in any instance's box."""
    path = place(membership)
    if not path:
        return True  # nobody can say where the process is
    # A tree that is mounted from further down shows what is above it too.
    return path.lstrip("/").startswith(PREFIX) or bool(_BOX.search(path))


def place(membership: str) -> str:
    """Return the path in the v2 tree from the text of /proc/<pid>/cgroup; empty without one."""
    lines = (line[3:] for line in membership.splitlines() if line.startswith("0::"))
    return next(lines, "")


def _mountinfo() -> str:
    with open(_MOUNTINFO, encoding="utf-8", errors="surrogateescape") as file:
        return file.read()


def _unescaped(text: str) -> str:
    for code, sign in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, sign)
    return text


if __name__ == "__main__":
    Tree(find_mount(), sys.argv[1] if len(sys.argv) > 1 else "main").create()
