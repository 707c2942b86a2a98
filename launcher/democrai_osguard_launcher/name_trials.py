"""What is tried of creating and deleting: acts on names that change nothing, whatever holds.

There are no hard links to folders, a folder is not unlinked, and a name that is moved onto itself
stays as it is. The kernel finds that out only after it has asked Landlock. None of this holds for a
link to a folder, which can be unlinked and linked like any file: so no link is ever followed here.
"""

from __future__ import annotations

import os
import stat

from .landlock import MAKE_DIR, REMOVE_DIR, REMOVE_FILE
from .trial import ALLOWED, HERE, REFUSED, Call, Futile, Planned, text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    Objects = set[tuple[int, int]]  # device and number: links do not matter then
    # A path, its rights, and what it leads to.
    Granted = Sequence[tuple[str, int, Collection[tuple[int, int]]]]

# Nobody else has such a name, and a process needs only one: it never comes to exist.
_NEW_NAME = f".osguard-{os.urandom(8).hex()}"
_NO_SUCH_LINK = ("EPERM", "EXDEV")  # the second where Landlock lets create and not move


def name_acts(granted: Granted) -> Iterator[Planned]:
    """Yield acts that are known to get as far as Landlock, and what must come of them.

    Unconfined.
    """
    taken = objects_with(MAKE_DIR | REMOVE_FILE, granted)
    ground = next(_grounds(taken), None)
    if ground:
        yield Planned(REFUSED, _second_name(ground, os.path.dirname(ground)))
        yield Planned(REFUSED, _no_removal(ground))
    else:
        yield from _first(_foreign_moves(taken), REFUSED)
    creating = (path for path, rights, _ in granted if rights & MAKE_DIR and _is_own(path))
    yield from _first(_second_name(path, path) for path in creating)
    yield from _first(map(_no_move, _entries_of(granted, MAKE_DIR | REMOVE_DIR)))
    yield from _first(map(_no_removal, filter(_is_own, _entries_of(granted, REMOVE_FILE))))


def _grounds(taken: Objects) -> Iterator[str]:
    """Yield folders that only the rules keep from being removed, the nearest first."""
    for path in _folders():
        if not _is_own(path) or not is_outside(path, taken):
            continue
        # From one mount to another the kernel has its answer before it asks anybody.
        if _second_name(path, os.path.dirname(path), ("EPERM",)).reaches_the_kernel():
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
    yield from _entries(here)
    yield "/usr"


def _foreign_moves(taken: Objects) -> Iterator[Futile]:
    """Yield what somebody can try who has no folder: to leave a name where it is needs no right."""
    for path in (*_folders(), "/tmp", "/var"):  # noqa: S108 - nothing is made there
        if is_outside(path, taken):
            yield _no_move(path)


def _first(acts: Iterator[Futile], expected: str = ALLOWED) -> Iterator[Planned]:
    act = next(acts, None)
    if act is not None and act.reaches_the_kernel():
        yield Planned(expected, act)


def _second_name(folder: str, place: str, beyond: tuple[str, ...] = _NO_SUCH_LINK) -> Futile:
    new = text(f"{place.rstrip('/')}/{_NEW_NAME}")
    act = f"a second name for the folder {folder}, in {place}"
    # With the dot it is a folder or an error, also where something else took its place meanwhile.
    do = Call("linkat", (HERE, text(f"{folder}/."), HERE, new, 0))
    return Futile("create", act, do, beyond)


def _no_removal(folder: str) -> Futile:
    do = Call("unlinkat", (HERE, text(folder), 0))
    return Futile("delete", f"unlinking the folder {folder}", do, ("EISDIR", "EPERM"))


def _no_move(path: str) -> Futile:
    do = Call("renameat", (HERE, text(path), HERE, text(path)))
    return Futile("delete", f"moving {path} onto itself", do)


def _is_own(path: str) -> bool:
    """Tell whether it is a folder of this user: others' are protected before Landlock is asked."""
    try:
        status = os.lstat(path)
    except OSError:
        return False
    return status.st_uid == os.geteuid() and stat.S_ISDIR(status.st_mode)


def _entries_of(granted: Granted, wanted: int) -> Iterator[str]:
    """Yield what is in folders whose rules give all of these rights; nobody creates devices."""
    for path, rights, _ in granted:
        if rights & wanted == wanted:
            yield from _entries(path)


def _entries(folder: str) -> Iterator[str]:
    try:
        with os.scandir(folder) as entries:
            yield from (each.path for each in entries if _is_plain(each))
    except OSError:
        return


def _is_plain(entry: os.DirEntry[str]) -> bool:
    return entry.is_file(follow_symlinks=False) or entry.is_dir(follow_symlinks=False)


def objects_with(right: int, granted: Granted) -> Objects:
    """Return which objects carry one of the rights."""
    return {found for _, rights, objects in granted if rights & right for found in objects}


def is_outside(path: str, objects: Objects) -> bool:
    """Tell whether the path leads to none of the objects, and into none."""
    return not objects or objects.isdisjoint(objects_above(path))


def objects_above(path: str) -> Objects:
    """Return the object and all folders that it is in."""
    parts = os.path.realpath(path).split("/")
    ancestors = ("/".join(parts[:end]) or "/" for end in range(1, len(parts) + 1))
    return {found for ancestor in ancestors for found in objects_at(ancestor)}


def objects_at(path: str) -> Objects:
    """Return the object that the path leads to, as a set of one, or of none."""
    try:
        status = os.stat(path)
    except OSError:
        return set()
    return {(status.st_dev, status.st_ino)}
