"""Where guard and kernel are known to answer differently, each with its reason.

SECURITY.md says the same to users. A case that no line here describes is a fault in one of the two.
"""

from __future__ import annotations

import os.path
from typing import TYPE_CHECKING, NamedTuple

from kernel.acts import DONE, REFUSED

if TYPE_CHECKING:
    from collections.abc import Callable

    Policy = tuple[tuple[str, str], ...]

_LINKS = {"in/link": "in/file", "in/away": "out/file", "in/road": "out"}
_FREE = frozenset(("in/new", "in/sub/new", "out/new"))
_LOOKING = {"stat", "lstat", "read link", "ask for access", "enter"}
_READING = {"open r", "open or create to read", "open to empty", "open r+", "open w+", "open a+"}
_MOVING = {"rename", "replace"}
_NAMING = {"make node", "make link", "make fifo", "hard link", *_MOVING}


class Case(NamedTuple):
    """One act under one policy, and what came of it."""

    policy: Policy
    act: str
    paths: tuple[str, ...]
    guard: str
    kernel: str

    @property
    def stricter(self) -> str:
        """Say who refused what the other did."""
        return {(REFUSED, DONE): "guard", (DONE, REFUSED): "kernel"}.get(
            (self.guard, self.kernel), "neither"
        )

    def covers(self, operation: str, path: str) -> bool:
        """Tell whether a rule holds at the path."""
        return any(
            own == operation and (path == root or path.startswith(f"{root}/"))
            for own, root in self.policy
        )

    def covers_beneath(self, operation: str, path: str) -> bool:
        """Tell whether a rule on a folder above holds at the path: all that Landlock can grant."""
        return self.covers(operation, os.path.dirname(path))


def name_of(path: str) -> str:
    """Return where the name is: links in its folder are followed, the name itself is not."""
    folder, name = os.path.split(os.path.normpath(path))
    return os.path.join(_LINKS.get(folder, folder), name)


def object_of(path: str) -> str:
    """Return where the object is."""
    return _LINKS.get(name_of(path), name_of(path))


def _reads_what_it_may_start(case: Case) -> bool:
    real = object_of(case.paths[0])
    return (
        case.act in _READING
        and case.stricter == "guard"
        and case.covers("execute", real)
        and not case.covers("read", real)
    )


def _makes_one_name(case: Case) -> bool:
    name = name_of(case.paths[-1])
    return (
        case.act in _NAMING
        and case.stricter == "kernel"
        and case.covers("create", name)
        and not case.covers_beneath("create", name)
    )


def _moves_one_name(case: Case) -> bool:
    name = name_of(case.paths[0])
    return (
        case.act in _MOVING
        and case.stricter == "kernel"
        and not case.covers_beneath("delete", name)
    )


def _replaces(case: Case) -> bool:
    name = name_of(case.paths[-1])
    return (
        case.act in _MOVING
        and case.stricter == "kernel"
        and name not in _FREE
        and not (case.covers_beneath("delete", name) and case.covers_beneath("create", name))
    )


def _would_gain(case: Case) -> bool:
    source, target = (name_of(path) for path in (case.paths[0], case.paths[-1]))
    gained = {operation for operation, _ in case.policy if case.covers(operation, target)}
    return (
        case.act in {*_MOVING, "hard link"}
        and case.stricter == "kernel"
        and not all(case.covers(operation, source) for operation in gained)
    )


def _links_what_it_may_not_read(case: Case) -> bool:
    return (
        case.act == "hard link"
        and case.stricter == "guard"
        and not case.covers("read", name_of(case.paths[0]))
    )


KNOWN: dict[str, Callable[[Case], bool]] = {
    "Landlock does not see stat, access, readlink and chdir": (
        lambda case: case.act in _LOOKING and case.stricter == "guard"
    ),
    "what may be started may be read: the kernel reads what it starts": _reads_what_it_may_start,
    "of single names the broker makes files and folders; Landlock grants beneath folders only": (
        _makes_one_name
    ),
    "a single name is deleted by the broker, not moved away": _moves_one_name,
    "replacing is a removal to Landlock, and a change to the contract": _replaces,
    "Landlock refuses to move or link a file to where more may be done with it": _would_gain,
    "a second name needs no right to read: Landlock asks only whether the file gains by it": (
        _links_what_it_may_not_read
    ),
}


def is_known(case: Case) -> bool:
    """Tell whether a line of the list describes the case."""
    return any(describes(case) for describes in KNOWN.values())


def is_known_remnant(case: Case, path: str) -> bool:
    """Tell whether an empty file may be left behind by an open that was refused.

    The kernel creates before it asks whether what was created may be opened.
    """
    return case.act.startswith("open") and case.covers("create", path)
