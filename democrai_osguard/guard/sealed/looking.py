"""Looking at files without opening them: stat and its kin, which the interpreter never reports."""

from __future__ import annotations

from posix import access as os_access
from posix import lstat, stat
from stat import S_ISLNK
from typing import Any

from democrai_osguard.guard.sealed.answers import about_path
from democrai_osguard.guard.sealed.core import MISSING, WATCH, State, current, get
from democrai_osguard.guard.sealed.opening import beside, check, exact, handed_out, keep, known
from democrai_osguard.guard.sealed.paths import CHANGES, absolute, near, resolve

_ROOM = 8192


def quick_stat(path: Any) -> object:  # noqa: ANN401
    """Do what `os.stat(path)` does, as far as the active guard allows."""
    token = get(MISSING)
    state = current() if token is not MISSING or WATCH else None
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
        return _judged_stat(state, path, None, True, False)  # noqa: FBT003 - by position, as the door takes it
    except BaseException as error:  # noqa: BLE001 - handed on without our frames
        return handed_out(error, state)


def _first_stat(state: State, path: str) -> object:
    """Look at a path that is new here: what is no link is judged where it is, with one look."""
    place = near(absolute(path)) if path else None
    if place is None:
        return _judged_stat(state, path, None, True, False)  # noqa: FBT003 - by position, as the door takes it
    try:
        found = lstat(place)
    except OSError as error:
        check(state, ("read",), place)
        error.filename = path
        raise
    if S_ISLNK(found.st_mode):
        return _judged_stat(state, path, None, True, False)  # noqa: FBT003 - by position, as the door takes it
    check(state, ("read",), place)
    if len(state.seen) > _ROOM:
        state.seen.clear()
    state.seen[path] = found.st_dev, found.st_ino
    return found


def stat_call(path: Any, dir_fd: Any, follow: Any, library: bool) -> object:  # noqa: ANN401, FBT001 - as the caller passed it
    """Do what `os.stat` and `os.lstat` do, as far as the active guard allows."""
    state = current()
    if state is None:
        return stat(path, dir_fd=dir_fd, follow_symlinks=follow)
    try:
        if dir_fd is None and not follow and type(path) is str:
            return _judged_lstat(state, path)
        return _judged_stat(state, path, dir_fd, bool(follow), library)
    except BaseException as error:  # noqa: BLE001 - handed on without our frames
        return handed_out(error, state)


def _judged_lstat(state: State, path: str) -> object:
    if not known(state, state.named, path):
        change = CHANGES[0]
        found = _judged_stat(state, path, None, False, False)  # noqa: FBT003 - by position, as the door takes it
        keep(state, state.named, path, change)
        return found
    return stat(path, follow_symlinks=False)


def _judged_stat(state: State, path: Any, dir_fd: Any, follow: bool, library: bool) -> object:  # noqa: ANN401, FBT001 - as the caller passed it
    exact(path)
    if type(path) is int or not path:
        return stat(path, dir_fd=dir_fd, follow_symlinks=follow)
    given = path if dir_fd is None else beside(state, path, dir_fd, library=library)
    place = resolve(absolute(given), follow=follow)
    check(state, ("read",), place)
    try:
        # The place holds no link any more; those of /proc lead to what has no name.
        found = stat(place, follow_symlinks=follow and place.startswith("/proc/"))
    except OSError as error:
        error.filename = path
        raise
    if follow and dir_fd is None:
        state.seen[path] = found.st_dev, found.st_ino
    return found


def access_call(path: Any, mode: Any, named: Any, library: bool) -> object:  # noqa: ANN401, FBT001 - as the caller passed it
    """Do what `os.access` does, as far as the active guard allows."""
    state = current()
    if state is None:
        return os_access(path, mode, **named)
    try:
        exact(path)
        if type(path) is not int and path:
            dir_fd = named.get("dir_fd")
            given = path if dir_fd is None else beside(state, path, dir_fd, library=library)
            check(state, ("read",), resolve(absolute(given)))
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
