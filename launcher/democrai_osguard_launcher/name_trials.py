"""What is tried of creating and deleting: acts on names that change nothing, whatever holds.

There are no hard links to folders, a folder is not unlinked, and a name that is moved onto itself
stays as it is. The kernel finds that out only after it has asked Landlock.
"""

from __future__ import annotations

import os

from .landlock import MAKE_DIR, REMOVE_DIR, REMOVE_FILE
from .trial import ALLOWED, REFUSED, Futile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    Granted = list[tuple[str, int]]
    Objects = set[tuple[int, int]]  # device and number: links do not matter then

_NO_SUCH_LINK = ("EPERM", "EXDEV")  # the second where Landlock lets create and not move


def name_acts(granted: Granted) -> Iterator[tuple[str, Futile]]:
    """Yield what is expected of which acts, each known to get as far as Landlock. Unconfined."""
    ground = next(_grounds(objects_with(MAKE_DIR | REMOVE_FILE, granted)), None)
    if ground:
        yield REFUSED, _second_name(ground, os.path.dirname(ground))
        act = f"unlinking the folder {ground}"
        yield REFUSED, Futile("delete", act, lambda: os.unlink(ground), ("EISDIR", "EPERM"))
    creating = (path for path, rights in granted if rights & MAKE_DIR and _is_own(path))
    yield from ((ALLOWED, act) for act in _first(_second_name(path, path) for path in creating))
    yield from ((ALLOWED, act) for act in _first(map(_no_move, _movable(granted))))


def _grounds(taken: Objects) -> Iterator[str]:
    """Yield folders that only the rules keep from being removed, the nearest first."""
    for path in _folders():
        if not _is_own(path) or not taken.isdisjoint(objects_above(path)):
            continue
        if _second_name(path, os.path.dirname(path)).reaches_the_kernel():
            yield path


def _folders() -> Iterator[str]:
    """Yield the working folder and those above it, one in it, and one that root can change."""
    try:
        here = path = os.getcwd()
    except FileNotFoundError:
        here = path = "/"
    while path != "/":
        yield path
        path = os.path.dirname(path)
    yield from (path for path in _entries(here) if os.path.isdir(path))
    yield "/usr"


def _first(acts: Iterator[Futile]) -> Iterator[Futile]:
    act = next(acts, None)
    if act is not None and act.reaches_the_kernel():
        yield act


def _second_name(folder: str, place: str) -> Futile:
    new = f"{place.rstrip('/')}/.osguard-{os.urandom(8).hex()}"
    act = f"a second name for the folder {folder}, in {place}"
    return Futile("create", act, lambda: os.link(folder, new), _NO_SUCH_LINK)


def _no_move(path: str) -> Futile:
    return Futile("delete", f"moving {path} onto itself", lambda: os.rename(path, path))


def _is_own(path: str) -> bool:
    """Tell whether it is a folder of this user: others' are protected before Landlock is asked."""
    try:
        return os.stat(path).st_uid == os.geteuid() and os.path.isdir(path)
    except OSError:
        return False


def _movable(granted: Granted) -> Iterator[str]:
    """Yield what rules let be created and deleted; nobody creates devices."""
    wanted = MAKE_DIR | REMOVE_DIR
    for path, rights in granted:
        if rights & wanted == wanted:
            yield from _entries(path)


def _entries(folder: str) -> Iterator[str]:
    try:
        with os.scandir(folder) as entries:
            yield from (each.path for each in entries if each.is_file() or each.is_dir())
    except OSError:
        return


def objects_with(right: int, granted: Granted) -> Objects:
    """Return which objects carry one of the rights."""
    return {found for path, rights in granted if rights & right for found in _object(path)}


def objects_above(path: str) -> Objects:
    """Return the object and all folders that it is in."""
    parts = os.path.realpath(path).split("/")
    ancestors = ("/".join(parts[:end]) or "/" for end in range(1, len(parts) + 1))
    return {found for ancestor in ancestors for found in _object(ancestor)}


def _object(path: str) -> Iterator[tuple[int, int]]:
    try:
        status = os.stat(path)
    except OSError:
        return
    yield status.st_dev, status.st_ino
