"""Looking at files without opening them: stat and its kin, which the interpreter never reports."""

from __future__ import annotations

from posix import access as os_access
from posix import close, lstat, stat, stat_result
from stat import S_IFMT, S_ISLNK
from time import monotonic
from typing import Any

from democrai_osguard.guard.sealed.answers import about_path, covered
from democrai_osguard.guard.sealed.core import MISSING, NAMED, WATCH, State, current, get
from democrai_osguard.guard.sealed.opening import (
    beside,
    check,
    exact,
    handed_out,
    keep,
    pinned,
    place_of,
    plainly,
)
from democrai_osguard.guard.sealed.paths import (
    CHANGES,
    MOVES,
    UNTIL,
    absolute,
    near,
    resolve,
    settled,
)

_ROOM = 8192


def quick_stat(path: Any) -> object:
    """Do what `os.stat(path)` does, as far as the active guard allows."""
    state = current() if get(MISSING) is not MISSING or WATCH else None
    if state is None:
        return stat(path)
    try:
        if type(path) is str:
            before = state.seen.get(path)
            if before is not None:
                found = stat(path)
                if before == (found.st_dev, found.st_ino):
                    return found
            return _first_stat(state, path)
        return _judged_stat(state, path)
    except BaseException as error:  # noqa: BLE001 - handed on without our frames
        return handed_out(error, state)


def _first_stat(state: State, path: str) -> object:
    """Look at a path that is new here: what is no link is judged where it is, with one look."""
    change = settled()
    place = near(absolute(path)) if path else None
    if place is None:
        return _judged_stat(state, path)
    try:
        found = lstat(place)
    except OSError as error:
        check(state, ("read",), place)
        error.filename = path
        raise
    if S_ISLNK(found.st_mode) or change != CHANGES[0] or MOVES[0]:
        return _judged_stat(state, path)
    check(state, ("read",), place)
    return _seen(state, path, found)


def quick_lstat(path: Any) -> object:
    """Do what `os.lstat(path)` does, as far as the active guard allows."""
    state = current()
    if state is None:
        return lstat(path)
    try:
        paths, change = NAMED.get(state.token), CHANGES[0]
        if (
            paths is not None
            and type(path) is str
            and paths.get(path) == change
            and monotonic() < UNTIL[0]
        ):
            found = lstat(path)
            if change == CHANGES[0]:
                return found
        return _judged_stat(state, path, follow=False)
    except BaseException as error:  # noqa: BLE001 - handed on without our frames
        return handed_out(error, state)


def stat_call(path: Any, dir_fd: Any, follow: Any, library: bool) -> object:  # noqa: FBT001 - a door takes its arguments by position
    """Do what `os.stat` and `os.lstat` do, as far as the active guard allows."""
    state = current()
    if state is None:
        return stat(path, dir_fd=dir_fd, follow_symlinks=follow)
    try:
        exact(path)
        plainly((dir_fd, follow))
        if type(path) is int:
            return stat(path, dir_fd=dir_fd, follow_symlinks=follow)
        given = path if dir_fd is None else beside(state, path, dir_fd, library=library)
        return _judged_stat(state, given, follow=bool(follow))
    except BaseException as error:  # noqa: BLE001 - handed on without our frames
        return handed_out(error, state)


def _judged_stat(state: State, path: Any, *, follow: bool = True) -> object:
    exact(path)
    if type(path) is int or not path:
        return stat(path, follow_symlinks=follow)
    change = settled()
    place = place_of(state, "read", path, follow=follow)
    check(state, ("read",), place)
    try:
        # The place holds no link any more; those of /proc lead to what has no name.
        through = follow and place.startswith("/proc/")
        found = stat(place, follow_symlinks=through)
        if not through and (change != CHANGES[0] or MOVES[0]):
            found = _held_stat(place)  # somebody renames meanwhile
    except OSError as error:
        error.filename = path
        raise
    if not follow:
        keep(state, NAMED, path, place, change)
        return found
    return _seen(state, path, found)


def _held_stat(place: str) -> stat_result:
    """Look at a normal path below its folder, which is held, so that nothing can lead elsewhere."""
    folder, _, name = place.rpartition("/")
    pin = pinned(folder or "/")
    try:
        return stat(f"/proc/self/fd/{pin}/{name}", follow_symlinks=False)
    finally:
        close(pin)


def _seen(state: State, path: str | bytes, found: stat_result) -> stat_result:
    """Remember which object a path has led to: where it leads there again, it is the judged one."""
    if len(state.seen) > _ROOM:
        state.seen.clear()
    state.seen[path] = found.st_dev, found.st_ino
    return found


def kind_by_making(path: Any, follow: Any) -> int | None:
    """Return what kind of thing is where something may be made, None where that is not known.

    Making it there would tell as much: that it exists, and whether it is a folder.
    """
    state = current()
    exact(path)
    if state is None or type(path) is int or not path:
        return None
    try:
        place = place_of(state, "create", path, follow=bool(follow))
        # By rules first: nobody is asked about making what is only looked for.
        declared = covered(state.roots.get("create", frozenset()), place)
        if not declared or about_path(state, "create", place) is not None:
            return None
        return S_IFMT(lstat(place).st_mode)
    except (OSError, Warning):
        return None


def access_call(path: Any, mode: Any, named: Any, library: bool) -> object:  # noqa: FBT001 - a door takes its arguments by position
    """Do what `os.access` does, as far as the active guard allows."""
    state = current()
    if state is None:
        return os_access(path, mode, **named)
    try:
        exact(path)
        named = dict(named)
        plainly((mode, *named.values()))
        if type(path) is not int and path:
            dir_fd = named.get("dir_fd")
            given = path if dir_fd is None else beside(state, path, dir_fd, library=library)
            check(state, ("read",), place_of(state, "read", given))
        return os_access(path, mode, **named)
    except BaseException as error:  # noqa: BLE001 - handed on without our frames
        return handed_out(error, state)


def real_path(path: str | bytes) -> object:
    """Return where a path leads, None if no guard is active, False where it may not be said."""
    state = current()
    if state is None:
        return None
    try:
        place = resolve(absolute(path))
    except Warning:
        return False
    return place if about_path(state, "read", place) is None else False
