"""Opening files: judged before, and again by what was really opened.

A file is never truncated or created through a name: truncation waits until the object is known,
and a new file is made under a folder that is held open and has been judged.
"""

from __future__ import annotations

from _io import open as _io_open
from _thread import LockType, get_ident
from errno import EEXIST, ENOENT
from posix import close, fstat, ftruncate, lstat, readlink, stat_result
from posix import open as os_open
from stat import S_ISLNK, S_ISREG
from sys import version_info
from time import monotonic
from typing import TYPE_CHECKING, Any

from democrai_osguard.guard.sealed.answers import about_path, noted, refusal
from democrai_osguard.guard.sealed.core import (
    FRESH,
    MISSING,
    State,
    current,
    get,
    state_of,
    without_history,
)
from democrai_osguard.guard.sealed.paths import (
    CHANGES,
    MOVES,
    UNTIL,
    absolute,
    resolve,
    settled,
)

if TYPE_CHECKING:
    from collections.abc import Callable

io_open: Any = _io_open  # its overloads know only literal modes

O_WRONLY, O_RDWR, O_ACCMODE = 1, 2, 3
O_CREAT, O_EXCL, O_TRUNC = 0o100, 0o200, 0o1000
O_NOFOLLOW, O_CLOEXEC, O_PATH = 0o400000, 0o2000000, 0o10000000
O_DIRECTORY, O_NONBLOCK = 0o200000, 0o4000
O_TMPFILE = 0o20000000
_CAREFUL = O_WRONLY | O_RDWR | O_CREAT | O_TRUNC | O_PATH | O_NOFOLLOW
_ROOM = 4096
_PATH_AND_REASON = 2  # what `paths` raises; a refusal has more
_WRITES = frozenset("wax+")
_EXACT = frozenset({str, bytes, int})
_PLAIN = frozenset({*_EXACT, bool, float, type(None)})
_COLLECTS = version_info < (3, 12)  # in the middle of a call, before its event is reported
_OWN = "/proc/self"
_ATTEMPTS = 8  # a file that appears and vanishes that often while we look is an attack

# The path that each thread is about to open, already judged, to read and to write. The hook takes
# it out when it is opened: exactly this object, once. Noted inside `try` everywhere, so that no
# exception from a signal leaves a note behind.
READING: dict[int, str | bytes] = {}
WRITING: dict[int, str | bytes] = {}


# What each thread has made in the copy that it is about to finish: device and number of each.
MADE: dict[int, set[tuple[int, int]]] = {}


def copying(begins: Any) -> bool:
    """Note that a copy begins here, or ends; tell whether none was under way."""
    ident = get_ident()
    if begins is True:
        new: set[tuple[int, int]] = set()
        return MADE.setdefault(ident, new) is new
    MADE.pop(ident, None)
    return False


def was_made(path: str | bytes) -> bool:
    """Tell whether the copy that is under way has made what is at a path."""
    made = MADE.get(get_ident())
    if not made:
        return False
    found = lstat(path)
    return (found.st_dev, found.st_ino) in made


def is_made(found: stat_result) -> None:
    """Note an object that was just made, where a copy is under way."""
    made = MADE.get(get_ident())
    if made is not None:
        made.add((found.st_dev, found.st_ino))


def builtin_open(file: Any, mode: Any, rest: Any, closefd: Any, opener: Any) -> object:
    """Do what `open` does, as far as the active guard allows."""
    state = current()
    if state is None:
        return io_open(file, mode, *rest, closefd, opener)
    try:
        exact(file)
        buffering, encoding, errors, newline = rest
        usual = type(rest) is tuple and type(buffering) is int and type(closefd) is bool
        if not usual or errors is not None or newline is not None:
            rest = buffering, encoding, errors, newline
            plainly((*rest, closefd))
        elif encoding is not None and type(encoding) is not str:
            plainly((encoding,))
        if type(file) is int or type(mode) is not str or not file:
            return io_open(file, mode, *rest, closefd, opener)
        if opener is not None:
            return _open_with(opener, file, mode, (*rest, closefd))
        if "r" in mode and "+" not in mode:
            return _open_to_read(state, file, mode, rest)
        return _open_to_write(state, file, mode, rest)
    except BaseException as error:  # noqa: BLE001 - handed on without our frames
        return handed_out(error, state)


def _open_to_read(state: State, file: str | bytes, mode: str, rest: tuple[Any, ...]) -> object:
    """Open for reading: that changes nothing, so the object can be judged once it is open."""
    ident = get_ident()
    change = settled()
    before = known(state, file, change)
    own = _own(file)
    try:
        READING[ident] = own
        opened = io_open(own, mode, *rest)
    finally:
        READING.pop(ident, None)
    if not before or change != CHANGES[0]:
        place = verified(state, opened.fileno(), ("read",), opened.close)
        keep(state, FRESH, file, place, change)
    return opened


def _own(path: Any) -> Any:
    """Return a path as an object that nobody else has: a note of it is good for nobody else.

    While `open` makes its objects, a collection can run any finalizer.
    """
    if len(path) == 1:  # shared by the whole interpreter
        path = f"./{path}" if type(path) is str else b"./" + path
    return (path + path[:1])[:-1]


def known(state: State, path: str | bytes, change: int) -> bool:
    """Tell whether a path to be read was judged at this count of changes; if not, judge it."""
    if is_fresh(state, path, change):
        return True
    check(state, ("read",), place_of(state, "read", path))
    return False


def is_fresh(state: State, path: str | bytes, change: int) -> bool:
    """Tell whether a path was judged, to be read, at this count of changes."""
    paths: dict[Any, int] | None = FRESH.get(state.token)
    return paths is not None and paths.get(path) == change


def keep(
    state: State, table: dict[LockType, dict[Any, int]], path: str | bytes, place: str, change: int
) -> None:
    """Let a path be known for as long as the count stays at which it was judged.

    Only one that is its own place is: relative paths, and links that lead through /proc, change
    what they mean without a rename. Nothing is where children rename behind our back.
    """
    if type(path) is str and path == place and not (MOVES[0] or state.subprocess):
        paths = table.setdefault(state.token, {})
        if len(paths) > _ROOM:
            paths.clear()
        paths[path] = change


def _open_to_write(state: State, file: str | bytes, mode: str, rest: tuple[Any, ...]) -> object:
    ident = get_ident()

    def opener(path: str | bytes, flags: int) -> int:
        return open_judged(state, path, flags, 0o666)

    own = _own(file)
    try:
        WRITING[ident] = own
        return io_open(own, mode, *rest, True, opener)  # noqa: FBT003 - `closefd`, which has no other value for a path
    finally:
        WRITING.pop(ident, None)


def quick_open(path: Any, flags: Any, mode: Any) -> object:
    """Open for reading what was judged a moment ago; return None where that is not the case.

    This is `os.open` as it is called most often, so it does without calls of our own.
    """
    token = get(MISSING)
    if type(token) is not LockType or type(path) is not str:
        return None
    if type(flags) is not int or type(mode) is not int:
        return None
    paths = FRESH.get(token)
    change = CHANGES[0]
    if paths is None or paths.get(path) != change or flags & _CAREFUL or monotonic() > UNTIL[0]:
        return None
    if _COLLECTS:
        path = (path + "/")[:-1]  # as `_own` does: none here is a single letter
    try:
        READING[get_ident()] = path
        descriptor = os_open(path, flags, mode)
        if change != CHANGES[0]:
            verified(state_of(token), descriptor, ("read",))
    except BaseException as error:  # noqa: BLE001 - handed on without our frames
        READING.pop(get_ident(), None)
        return handed_out(error, state_of(token))
    return descriptor


def _open_with(opener: Any, file: str | bytes, mode: str, rest: tuple[Any, ...]) -> object:
    """Open by a function of the caller's, which is judged where that opens: the name is a name."""
    table = WRITING if set(mode) & _WRITES else READING
    own = _own(file)
    try:
        table[get_ident()] = own
        return io_open(own, mode, *rest, opener)
    finally:
        table.pop(get_ident(), None)


def os_open_call(path: Any, flags: Any, mode: Any, dir_fd: Any, library: bool) -> object:  # noqa: FBT001 - a door takes its arguments by position
    """Do what `os.open` does, as far as the active guard allows."""
    state = current()
    if state is None:
        if dir_fd is None:
            return os_open(path, flags, mode)
        return os_open(path, flags, mode, dir_fd=dir_fd)
    try:
        exact(path)
        plainly((flags, mode, dir_fd))
        if dir_fd is not None:
            path = beside(state, path, dir_fd, library=library)
        return open_judged(state, path, flags, mode)
    except BaseException as error:  # noqa: BLE001 - handed on without our frames
        return handed_out(error, state)


def open_judged(state: State, path: str | bytes, flags: int, mode: int) -> int:
    """Return a descriptor of an object that the guard allows; raise a Warning where it does not."""
    if flags & _CAREFUL:
        return _open_carefully(state, path, flags, mode)
    change = settled()
    before = known(state, path, change)
    descriptor = open_passed(path, flags, mode)
    if not before or change != CHANGES[0]:
        place = verified(state, descriptor, ("read",))
        keep(state, FRESH, path, place, change)
    return descriptor


def verified(
    state: State,
    descriptor: int,
    operations: tuple[str, ...],
    shut: Callable[[], object] | None = None,
) -> str:
    """Judge the object behind a descriptor by its name, and return that; close what is refused."""
    try:
        place = readlink(f"/proc/self/fd/{descriptor}")
        if place.startswith("/"):
            if place.endswith(" (deleted)") and not fstat(descriptor).st_nlink:
                place = place.removesuffix(" (deleted)")
            check(state, operations, place_of(state, operations[0], place, follow=False))
    except BaseException:
        if shut is None:
            close(descriptor)
        else:
            shut()
        raise
    return place


def _open_carefully(state: State, path: str | bytes, flags: int, mode: int) -> int:
    for _ in range(_ATTEMPTS):
        asked = needed(flags, exists=False)[0]
        place = place_of(state, asked, path, follow=not flags & O_NOFOLLOW)
        present = exists(place)
        operations = needed(flags, exists=present)
        check(state, operations, place)
        try:
            if present or not flags & O_CREAT:
                return _open_existing(state, place, path, flags, operations)
            return _create(place, flags, mode)
        except OSError as error:
            if error.errno == EEXIST and not flags & O_EXCL and not present:
                continue  # it appeared meanwhile
            if error.errno == ENOENT and present and flags & O_CREAT:
                continue  # it vanished meanwhile
            raise
    raise refusal(state, "sandbox_filesystem_denied", operations[0], place, "it keeps changing")


def _open_existing(
    state: State, place: str, path: str | bytes, flags: int, operations: tuple[str, ...]
) -> int:
    if flags & O_EXCL and flags & O_CREAT:
        raise OSError(EEXIST, "File exists", path)
    plain = flags & ~(O_TRUNC | O_CREAT)
    descriptor = open_passed(path if flags & O_NOFOLLOW else place, plain, 0)
    verified(state, descriptor, operations)
    if flags & O_TRUNC and S_ISREG(fstat(descriptor).st_mode):
        _empty(descriptor, flags)
    return descriptor


def _empty(descriptor: int, flags: int) -> None:
    """Truncate what was opened, and that object alone, also where it was opened to read."""
    if flags & O_ACCMODE:
        ftruncate(descriptor, 0)
        return
    writer = open_passed(f"/proc/self/fd/{descriptor}", O_WRONLY | O_CLOEXEC, 0)
    try:
        ftruncate(writer, 0)
    finally:
        close(writer)


def _create(place: str, flags: int, mode: int) -> int:
    folder, _, name = place.rpartition("/")
    pin = pinned(folder or "/")
    try:
        descriptor = open_passed(f"/proc/self/fd/{pin}/{name}", flags | O_EXCL, mode)
        if MADE:
            is_made(fstat(descriptor))
        return descriptor
    finally:
        close(pin)


def pinned(place: str) -> int:
    """Return a descriptor that holds exactly the object at a normal path."""
    named = _numbered(place)
    pin = open_passed(named, O_PATH | O_NOFOLLOW | O_CLOEXEC, 0)
    if readlink(f"/proc/self/fd/{pin}") != named:
        close(pin)
        raise OSError(ENOENT, "No such file or directory", place)
    return pin


def _numbered(place: str) -> str:
    """Return a place of this process's own in /proc by the number that the kernel calls it by."""
    if place != _OWN and not place.startswith(f"{_OWN}/"):
        return place
    # Asked of /proc itself, which may count otherwise than `getpid`.
    return f"/proc/{readlink(_OWN)}{place.removeprefix(_OWN)}"


def open_passed(path: str | bytes, flags: int, mode: int) -> int:
    """Open what has been judged, past the hook."""
    ident = get_ident()
    table = WRITING if flags & O_ACCMODE else READING
    if _COLLECTS:
        path = _own(path)
    try:
        table[ident] = path
        return os_open(path, flags, mode)
    finally:
        table.pop(ident, None)


def needed(flags: int, *, exists: bool) -> tuple[str, ...]:
    """Return the operations that opening with these flags amounts to."""
    access = flags & O_ACCMODE
    if flags & O_TMPFILE == O_TMPFILE:
        return ("create",)
    creates = bool(flags & O_CREAT) and not exists
    writes = access in {O_WRONLY, O_RDWR} or bool(flags & O_TRUNC)
    found = ("create",) if creates else ("modify",) if writes else ()
    return found if access == O_WRONLY else (*found, "read")


def exists(place: str) -> bool:
    """Tell whether something that is no link is at a place."""
    try:
        return not S_ISLNK(lstat(place).st_mode)
    except OSError:
        return False


def place_of(state: State, operation: str, path: str | bytes, *, follow: bool = True) -> str:
    """Return where a path leads; raise the refusal of an operation where that cannot be said."""
    try:
        return resolve(absolute(path), follow=follow)
    except Warning as error:
        raise refusal(state, "sandbox_filesystem_denied", operation, *error.args) from None


def check(state: State, operations: tuple[str, ...], place: str) -> None:
    """Raise the refusal of the first operation on a place that is not allowed."""
    for operation in operations:
        answer = about_path(state, operation, place)
        if answer is not None:
            raise answer


def beside(state: State, path: str | bytes, dir_fd: int, *, library: bool) -> str | bytes:
    """Return a path relative to a folder's descriptor as one from the root."""
    check_descriptor(state, "dir_fd", library=library)
    text = path if isinstance(path, str) else path.decode("utf-8", "surrogateescape")
    if text.startswith("/"):
        return path
    return f"{readlink(f'/proc/self/fd/{dir_fd}')}/{text}"


def check_descriptor(state: State, parameter: str, *, library: bool) -> None:
    """Raise the refusal of a parameter that is a folder's descriptor, where those are closed."""
    if not (library or state.subprocess):
        raise refusal(state, "sandbox_filesystem_fd_denied", None, parameter)


def handed_out(error: BaseException, state: State) -> BaseException:
    """Return an exception as `bare` does; a refusal is written down on its way out."""
    return noted(bare(error, state))  # type: ignore[no-any-return] # what goes in


def bare(error: BaseException, state: State) -> BaseException:
    """Return an exception without our frames in its history."""
    if type(error) is Warning:
        return as_refusal(error, state)
    return without_history(error)


def exact(path: object) -> None:
    """Raise TypeError for anything but plain text, bytes or a number: it could run code in here."""
    if type(path) not in _EXACT:
        raise TypeError("a path is text, bytes or a descriptor")


def plainly(values: Any) -> None:
    """Raise TypeError for an argument that could run code once all is judged, when it is used."""
    for value in values:
        if type(value) in {tuple, list}:
            plainly(value)
        elif type(value) not in _PLAIN:
            raise TypeError("an argument has methods of its own")


def as_refusal(error: Warning, state: State, operation: str | None = None) -> Warning:
    """Return the refusal of a path that leads nowhere safe; other refusals are complete."""
    if len(error.args) > _PATH_AND_REASON:
        return error.with_traceback(None)
    return refusal(state, "sandbox_filesystem_denied", operation, *error.args)
