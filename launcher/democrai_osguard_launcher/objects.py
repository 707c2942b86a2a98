"""Which object a name stands for: a rule is about what was there when the command started.

The kernel holds a rule to the object, whatever its name becomes. The broker judges by paths, and
what it then acts on must be that same object, or be beneath it.
"""

from __future__ import annotations

import os

from . import kernel

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from .broker import Roots

    Identity = bytes
    Noted = Mapping[tuple[str, str], Identity]  # by operation and path

_STATX_WANTED = 0xFFF  # what is always told, and the time of birth: a number is used again
_HERE = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


def identity(held: int) -> Identity:
    """Return what tells the open object from every other: device, number and birth."""
    status = kernel.long_status_of(held, 0, _STATX_WANTED)
    return status[32:40] + status[80:92] + status[136:144]


def opened_at(path: str) -> int:
    """Open, without rights, what is at a real path, on which there is no link any more."""
    return kernel.open_without_links(os.fsencode(path), _HERE, 0)


def identity_at(path: str) -> Identity | None:
    """Return the identity of what is at a real path; None where nothing is, or a link leads on."""
    try:
        held = opened_at(path)
    except OSError:
        return None
    try:
        return identity(held)
    finally:
        os.close(held)


def identity_in(folder: int, name: bytes) -> Identity | None:
    """Return the identity of what has the name in an open folder; None where nothing has."""
    try:
        held = os.open(name, _HERE, dir_fd=folder)
    except FileNotFoundError:
        return None
    try:
        return identity(held)
    finally:
        os.close(held)


def note(roots: Roots, operations: Iterable[str]) -> Noted:
    """Note what is at the roots of these operations; what is missing is not in the answer."""
    places = {root for own, root in roots if own in operations}
    found = {root: here for root in places if (here := identity_at(root)) is not None}
    return {(own, root): found[root] for own, root in roots if own in operations and root in found}


def is_at(held: int, path: str, root: str, noted: Identity) -> bool:
    """Tell whether the open object, found at the path, is what was noted at the root or beneath it.

    Each part of the way is opened in the one before, and none may be a link: the folders could be
    exchanged between any two looks at a path.
    """
    if path == root:
        return identity(held) == noted
    try:
        here = opened_at(root)
    except OSError:
        return False
    try:
        if identity(here) != noted:
            return False
        for name in path[len(root.rstrip("/")) + 1 :].split("/"):
            beneath = os.open(name, _HERE, dir_fd=here)
            os.close(here)
            here = beneath
        return identity(here) == identity(held)
    except OSError:
        return False
    finally:
        os.close(here)
