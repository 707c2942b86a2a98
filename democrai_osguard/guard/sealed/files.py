"""File system calls: what each touches is judged, then it acts on exactly what was judged.

An argument is replaced by a name under a held descriptor (`/proc/self/fd/N/name`) while the call
runs, so that a link put in its way between check and use leads nowhere.
"""

from __future__ import annotations

from _thread import get_ident
from posix import close, lstat, readlink, scandir
from typing import Any

from democrai_osguard.guard.sealed.core import State, current
from democrai_osguard.guard.sealed.opening import (
    PASSES,
    beside,
    check,
    exact,
    handed_out,
    keep,
    known,
    pinned,
)
from democrai_osguard.guard.sealed.paths import CHANGES, absolute, moving, resolve

ORIGINALS: dict[str, Any] = {}
# What a row says about one argument: operation, position, keyword, how it is resolved.
Touch = tuple[str, int, str, str]
EVENTS = {"unlink": "os.remove", "replace": "os.rename", "lchown": "os.chown"}  # by another name
_ROOM = 8192
_MOVES = frozenset({"rename", "replace", "link", "symlink", "chdir", "rmdir"})


def call(name: str, touches: tuple[Touch, ...], args: Any, kwargs: Any, library: bool) -> object:  # noqa: ANN401, FBT001 - as the caller passed it
    """Do what a call of the table does, as far as the active guard allows."""
    state = current()
    moves = name in _MOVES
    if moves:
        moving(1)
    try:
        if state is None:
            return ORIGINALS[name](*args, **kwargs)
        return _judged_call(state, name, touches, args, kwargs, library)
    finally:
        if moves:
            moving(-1)


def _judged_call(  # noqa: PLR0913, PLR0917 - the call's own parameters
    state: State,
    name: str,
    touches: tuple[Touch, ...],
    args: Any,  # noqa: ANN401
    kwargs: Any,  # noqa: ANN401
    library: bool,  # noqa: FBT001 - as the caller passed it
) -> object:
    pins: list[int] = []
    try:
        values, named = _held(state, touches, list(args), dict(kwargs), library, pins)
        return _passed(EVENTS.get(name, f"os.{name}"), ORIGINALS[name], values, named)
    except OSError as error:
        if error.filename is not None and pins:
            error.filename = _argument(args, kwargs, touches[0][1], touches[0][2])
        return handed_out(error, state)
    except BaseException as error:  # noqa: BLE001 - handed on without our frames
        return handed_out(error, state)
    finally:
        for pin in pins:
            close(pin)


def _held(  # noqa: PLR0913, PLR0917 - the call's own parameters
    state: State,
    touches: tuple[Touch, ...],
    values: list[Any],
    named: dict[str, Any],
    library: bool,  # noqa: FBT001 - as the caller passed it
    pins: list[int],
) -> tuple[list[Any], dict[str, Any]]:
    for operation, position, keyword, how in touches:
        given = _argument(values, named, position, keyword)
        if given is None:
            given = "."
        text = _judged(state, operation, given, how, named, keyword, library, pins)
        if text is None:
            continue
        held = text if isinstance(given, str) else text.encode("utf-8", "surrogateescape")
        if position < len(values):
            values[position] = held
        else:
            named[keyword] = held
    for key in [key for key in named if key.endswith("dir_fd")]:
        del named[key]
    return values, named


def _judged(  # noqa: PLR0913, PLR0917 - the call's own parameters
    state: State,
    operation: str,
    given: Any,  # noqa: ANN401
    how: str,
    named: dict[str, Any],
    keyword: str,
    library: bool,  # noqa: FBT001 - as the caller passed it
    pins: list[int],
) -> str | None:
    """Judge one argument; return the name to use for it, None to use it as it is."""
    exact(given)
    if type(given) is int:
        place = readlink(f"/proc/self/fd/{given}")
        if place.startswith("/"):
            check(state, (operation,), resolve(place.removesuffix(" (deleted)"), follow=False))
        return None
    if not given:
        return None
    dir_fd = _dir_fd(named, keyword)
    if dir_fd is not None:
        given = beside(state, given, dir_fd, library=library)
    by_name = how == "name" or (how == "object" and named.get("follow_symlinks") is False)
    place = resolve(absolute(given), follow=not by_name)
    if operation == "write":
        operation = "modify" if there(place) else "create"
    check(state, (operation,), place)
    return _pin(place, how, pins, by_name=by_name)


def _pin(place: str, how: str, pins: list[int], *, by_name: bool) -> str:
    if how == "plain" or place == "/":
        return place
    if not by_name:
        pins.append(pinned(place))
        return f"/proc/self/fd/{pins[-1]}"
    folder, _, name = place.rpartition("/")
    pins.append(pinned(folder or "/"))
    return f"/proc/self/fd/{pins[-1]}/{name}"


def _passed(event: str, original: Any, values: list[Any], named: dict[str, Any]) -> object:  # noqa: ANN401
    ident = get_ident()
    PASSES[ident] = event, False
    try:
        return original(*values, **named)
    finally:
        PASSES.pop(ident, None)


def _dir_fd(named: dict[str, Any], keyword: str) -> int | None:
    own = {"src": "src_dir_fd", "dst": "dst_dir_fd"}.get(keyword, "dir_fd")
    found = named.get(own, named.get("dir_fd"))
    return found if type(found) is int else None


def _argument(values: Any, named: Any, position: int, keyword: str) -> Any:  # noqa: ANN401
    return values[position] if position < len(values) else named.get(keyword)


def there(place: str) -> bool:
    """Tell whether anything, even a link, is at a place."""
    try:
        lstat(place)
    except OSError:
        return False
    return True


def listing(path: Any) -> object:  # noqa: ANN401
    """Do what `os.scandir` does; under a guard the iterator comes in a tuple, to be wrapped."""
    state = current()
    if state is None:
        return scandir() if path is None else scandir(path)
    ident = get_ident()
    try:
        if path is not None:
            exact(path)
        if type(path) is int:
            _judged(state, "read", path, "plain", {}, "path", library=False, pins=[])
        else:
            path = "." if path is None else path
        if type(path) is not int and not known(state, state.fresh, path):
            change = CHANGES[0]
            check(state, ("read",), resolve(absolute(path)))
            keep(state, state.fresh, path, change)
        PASSES[ident] = "os.scandir", False
        return (scandir(path),)
    except BaseException as error:  # noqa: BLE001 - handed on without our frames
        return handed_out(error, state)
    finally:
        PASSES.pop(ident, None)
