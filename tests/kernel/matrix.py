"""The operations matrix: what is done to which kind of object, and where the rule stands."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from kernel.folder_acts import _execute as execute

if TYPE_CHECKING:
    from collections.abc import Callable

    Act = Callable[[Path], object]

KINDS = ("file", "directory", "symlink", "fifo", "socket", "device")
POSITIONS = ("granted", "sibling", "parent", "child")
NULL = os.makedev(1, 3)


class Cell(NamedTuple):
    """An act on an object of a kind; the object stands thus to the target of the rule."""

    act: str
    kind: str
    position: str

    @property
    def operation(self) -> str:
        """The operation of the contract that the act is."""
        return {"look": "read", "change": "modify"}.get(self.act, self.act)

    @property
    def is_allowed(self) -> bool:
        """Whether the contract allows it: a rule covers its target and what is beneath."""
        if (self.kind, self.position) == ("symlink", "granted") and self.act in {"look", "change"}:
            return False  # the rule stands where the link leads, and these are about the link
        return self.position in {"granted", "child"} and not self.is_impossible

    @property
    def is_impossible(self) -> bool:
        """Whether no rule can open it: devices are not made, and only files are started."""
        if self.act == "execute":
            return self.kind not in {"file", "symlink"}
        return (self.act, self.kind) == ("create", "device")

    def target(self, at: Path) -> Path:
        """Where the rule stands."""
        inner = at / "inner"
        above = inner / "object/beneath" if self.kind == "directory" else inner / "folder"
        return {
            "granted": inner / "object",
            "sibling": inner / "other",
            "parent": above,
            "child": inner,
        }[self.position]


def _opened(flags: int) -> Act:
    return lambda path: os.close(os.open(path, flags | os.O_NONBLOCK))


_READ: dict[str, Act] = {"directory": os.listdir, "socket": os.stat}
_CHANGE: dict[str, Act] = {"symlink": lambda path: os.utime(path, (1, 1), follow_symlinks=False)}
_CREATE: dict[str, Act] = {
    "file": _opened(os.O_WRONLY | os.O_CREAT | os.O_EXCL),
    "directory": os.mkdir,
    "symlink": lambda path: path.symlink_to("anything"),
    "fifo": os.mkfifo,
    "socket": lambda path: os.mknod(path, 0o140600),
    "device": lambda path: os.mknod(path, 0o20600, NULL),
}


def act_of(cell: Cell) -> Act:
    """Return what is done in the cell."""
    change = _CHANGE.get(cell.kind, lambda path: os.chmod(path, 0o700))
    unwritable = cell.kind in {"directory", "socket"}  # all that changes there is metadata
    return {
        "read": _READ.get(cell.kind, _opened(os.O_RDONLY)),
        "look": os.lstat,
        "create": _CREATE[cell.kind],
        "modify": change if unwritable else _opened(os.O_WRONLY),
        "change": change,
        "delete": os.rmdir if cell.kind == "directory" else os.unlink,
        "execute": execute,
    }[cell.act]


def lay_out(at: Path, cell: Cell) -> Path:
    """Make what the cell needs, and return the object."""
    inner = at / "inner"
    (inner / "folder").mkdir(parents=True)
    for name in ("object", "other"):
        if cell.act != "create" or name == "other":
            _make(inner / name, cell)
    return inner / "object"


def _make(path: Path, cell: Cell) -> None:
    if cell.kind == "file":
        _make_file(path)
    elif cell.kind == "symlink":
        _make_file(path.with_suffix(".end"))
        path.symlink_to(path.with_suffix(".end"))
    else:
        _CREATE[cell.kind](path)
    if cell.kind == "directory" and cell.act != "delete":
        (path / "beneath").mkdir()


def _make_file(path: Path) -> None:
    path.write_bytes(Path("/usr/bin/true").read_bytes())
    path.chmod(0o755)
