"""File system calls: what each touches is judged, then it acts on exactly what was judged.

An argument is replaced by a name under a held descriptor (`/proc/self/fd/N/name`) while the call
runs, so that a link put in its way between check and use leads nowhere.
"""

from __future__ import annotations

from _stat import S_ISBLK, S_ISCHR
from _thread import get_ident
from posix import close, lstat, readlink, scandir
from time import monotonic, sleep
from typing import Any

from democrai_osguard.guard.sealed.answers import covered, refusal
from democrai_osguard.guard.sealed.core import FRESH, State, current
from democrai_osguard.guard.sealed.opening import (
    MADE,
    beside,
    check,
    check_descriptor,
    exact,
    handed_out,
    is_fresh,
    is_made,
    keep,
    pinned,
    place_of,
    plainly,
    was_made,
)
from democrai_osguard.guard.sealed.paths import (
    CHANGES,
    MOVES,
    UNTIL,
    moving,
    settled,
)

ORIGINALS: dict[str, Any] = {}
TOUCHES: dict[str, tuple[Any, ...]] = {}  # what the row of each says about its arguments
# What each thread is about to do, already judged: the event, and which of its arguments is what.
ACTING: dict[int, tuple[str, int, object]] = {}
# What a row says about one argument: operation, position, keyword, how it is resolved.
Touch = tuple[str, int, str, str]
EVENTS = {"unlink": "os.remove", "replace": "os.rename", "lchown": "os.chown"}  # by another name
_ATTEMPTS, _PAUSE = 2000, 0.001  # how often, and how long, a listing waits for others' renames
# What a new name could make possible that the old one does not: a link is read anyway, and what is
# moved away can be changed as well as deleted.
GAINS = {
    "link": ("modify", "execute"),
    "rename": ("read", "execute"),
    "replace": ("read", "execute"),
}
_MOVES = frozenset({"rename", "replace", "link", "symlink", "chdir", "rmdir"})


def call(name: str, args: Any, kwargs: Any, library: bool) -> object:  # noqa: FBT001 - a door takes its arguments by position
    """Do what a call of the table does, as far as the active guard allows."""
    state = current()
    if type(name) is not str or type(args) is not list or type(kwargs) is not dict:
        raise TypeError("a call is a name, a list and a dictionary")
    moves = name in _MOVES
    if moves:
        moving(1)
    try:
        if state is None:
            return ORIGINALS[name](*args, **kwargs)
        return _judged_call(state, name, TOUCHES[name], args, kwargs, library)
    finally:
        if moves:
            moving(-1)


def _judged_call(  # noqa: PLR0913, PLR0917 - a call and its row, handed down whole
    state: State,
    name: str,
    touches: tuple[Touch, ...],
    args: Any,
    kwargs: Any,
    library: bool,  # noqa: FBT001 - a door takes its arguments by position
) -> object:
    pins: list[int] = []
    try:
        values, named = list(args), dict(kwargs)
        _check_arguments(state, name, values, named, library=library)
        values, named = _held(state, touches, values, named, library, pins)
        if name in GAINS:
            held = [_argument(values, named, touch[1], touch[2]) for touch in touches]
            check_gain(state, name, *map(_place, held))
        place = touches[0][1]
        note = EVENTS.get(name, f"os.{name}"), place, _argument(values, named, place, touches[0][2])
        return _passed(note, ORIGINALS[name], values, named)
    except OSError as error:
        if error.filename is not None and pins:
            error.filename = _argument(args, kwargs, touches[0][1], touches[0][2])
            if error.filename2 is not None:
                error.filename2 = _argument(args, kwargs, touches[-1][1], touches[-1][2])
        return handed_out(error, state)
    except BaseException as error:  # noqa: BLE001 - handed on without our frames
        return handed_out(error, state)
    finally:
        for pin in pins:
            close(pin)


def _check_arguments(
    state: State, name: str, values: list[Any], named: dict[str, Any], *, library: bool
) -> None:
    plainly(values)
    if named:
        plainly(named.values())
        _check_descriptors(state, named, library=library)
    if name == "mknod":
        _check_kind(state, values, named)


def _check_kind(state: State, values: list[Any], named: dict[str, Any]) -> None:
    """Raise the refusal of a device: what it stands for is no file of the folder that it is in."""
    mode = _argument(values, named, 1, "mode") or 0
    if S_ISCHR(mode) or S_ISBLK(mode):
        why = "it would stand for a device"
        path = _argument(values, named, 0, "path")
        text = path if type(path) is str else path.decode("utf-8", "surrogateescape")
        raise refusal(state, "sandbox_filesystem_denied", "create", text, why)


def _check_descriptors(state: State, named: dict[str, Any], *, library: bool) -> None:
    """Raise the refusal of the first parameter that is a folder's descriptor."""
    for parameter, value in named.items():
        if parameter.endswith("dir_fd") and value is not None:
            check_descriptor(state, parameter, library=library)


def _held(  # noqa: PLR0913, PLR0917 - a call and its row, handed down whole
    state: State,
    touches: tuple[Touch, ...],
    values: list[Any],
    named: dict[str, Any],
    library: bool,  # noqa: FBT001 - a door takes its arguments by position
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


def _judged(  # noqa: PLR0913, PLR0917 - a call and its row, handed down whole
    state: State,
    operation: str,
    given: Any,
    how: str,
    named: dict[str, Any],
    keyword: str,
    library: bool,  # noqa: FBT001 - a door takes its arguments by position
    pins: list[int],
) -> str | None:
    """Judge one argument; return the name to use for it, None to use it as it is."""
    exact(given)
    if type(given) is int:
        place = readlink(f"/proc/self/fd/{given}")
        if place.startswith("/"):
            name = place.removesuffix(" (deleted)")
            check(state, (operation,), place_of(state, operation, name, follow=False))
        return None
    if not given:
        return None
    dir_fd = _dir_fd(named, keyword)
    if dir_fd is not None:
        given = beside(state, given, dir_fd, library=library)
    by_name = how == "name" or (how == "object" and named.get("follow_symlinks") is False)
    asked = "create" if operation == "write" else operation
    place = place_of(state, asked, given, follow=not by_name)
    if operation == "write":
        operation = "modify" if there(place) else "create"
    # To copy is to read and to create: what a new file gets beside its contents is part of that.
    if operation != "modify" or not MADE or not was_made(place):
        check(state, (operation,), place)
    return _pin(place, how, pins, by_name=by_name)


def check_gain(state: State, call_name: str, source: str, name: str) -> None:
    """Raise a refusal where more may be done to a file by its new name than by the one it has."""
    for operation in GAINS[call_name]:
        if covered(state.roots.get(operation, frozenset()), name):
            check(state, (operation,), source)


def _place(held: Any) -> str:
    """Return the whole path of a name below a held descriptor."""
    text = held if type(held) is str else held.decode("utf-8", "surrogateescape")
    folder, _, last = text.rpartition("/")
    return f"{readlink(folder).rstrip('/')}/{last}"


def _pin(place: str, how: str, pins: list[int], *, by_name: bool) -> str:
    if how == "plain" or place == "/":
        return place
    if not by_name:
        pins.append(pinned(place))
        return f"/proc/self/fd/{pins[-1]}"
    folder, _, name = place.rpartition("/")
    pins.append(pinned(folder or "/"))
    return f"/proc/self/fd/{pins[-1]}/{name}"


def _passed(
    note: tuple[str, int, Any], original: Any, values: list[Any], named: dict[str, Any]
) -> object:
    ident = get_ident()
    try:
        ACTING[ident] = note
        done = original(*values, **named)
    finally:
        ACTING.pop(ident, None)
    if MADE and note[0] == "os.mkdir":
        is_made(lstat(note[2]))
    return done


def _dir_fd(named: dict[str, Any], keyword: str) -> int | None:
    own = {"src": "src_dir_fd", "dst": "dst_dir_fd"}.get(keyword, "dir_fd")
    found = named.get(own, named.get("dir_fd"))
    return found if type(found) is int else None


def _argument(values: Any, named: Any, position: int, keyword: str) -> Any:
    return values[position] if position < len(values) else named.get(keyword)


def there(place: str) -> bool:
    """Tell whether anything, even a link, is at a place."""
    try:
        lstat(place)
    except OSError:
        return False
    return True


def listing(path: Any) -> object:
    """Do what `os.scandir` does; under a guard the iterator comes in a tuple, to be wrapped."""
    state = current()
    if state is None:
        return scandir() if path is None else scandir(path)
    try:
        paths, change = FRESH.get(state.token), CHANGES[0]
        if (
            paths is not None
            and type(path) is str
            and paths.get(path) == change
            and monotonic() < UNTIL[0]
        ):
            found = _scanned(path)
            if change == CHANGES[0]:
                return (found,)
            found.close()
        if path is None:
            path = "."
        exact(path)
        if type(path) is int:
            _judged(state, "read", path, "plain", {}, "path", library=False, pins=[])
            return (_scanned(path),)
        return (_settled_listing(state, path),)
    except BaseException as error:  # noqa: BLE001 - handed on without our frames
        return handed_out(error, state)


def _settled_listing(state: State, path: str | bytes) -> object:
    """List a folder that was judged, at a moment when nothing is being renamed."""
    for _ in range(_ATTEMPTS):
        change = settled()
        if not is_fresh(state, path, change):
            place = place_of(state, "read", path)
            check(state, ("read",), place)
            keep(state, FRESH, path, place, change)
        found = _scanned(path)
        if change == CHANGES[0] and not MOVES[0]:
            return found
        found.close()
        sleep(_PAUSE)
    text = path if isinstance(path, str) else path.decode("utf-8", "surrogateescape")
    raise refusal(state, "sandbox_filesystem_denied", "read", text, "it keeps changing")


def _scanned(path: Any) -> Any:
    ident = get_ident()
    try:
        ACTING[ident] = "os.scandir", 0, path
        return scandir(path)
    finally:
        ACTING.pop(ident, None)
