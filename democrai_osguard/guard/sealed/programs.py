"""Which file a program's name means, and whether it may be started.

What is judged here is what is started: a caller hands on the place that `judged` returns, never the
name that it asked about. A look-up of its own could find another file, by other variables, in
another folder, or because the first one found does not start.
"""

from __future__ import annotations

from _stat import S_ISREG
from errno import EACCES, ENOENT
from posix import access as may
from posix import close, read, stat, strerror
from re import compile as pattern
from typing import TYPE_CHECKING

from democrai_osguard.guard.sealed.answers import about_path, refusal
from democrai_osguard.guard.sealed.opening import O_CLOEXEC, O_NONBLOCK, open_passed
from democrai_osguard.guard.sealed.paths import absolute, is_there, resolve

if TYPE_CHECKING:
    from democrai_osguard.guard.sealed.core import State

# Where a program that is granted by its bare name must lie: folders that need root to change.
SYSTEM_FOLDERS = frozenset(
    {"/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin", "/bin", "/sbin"}
)
DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"
_CODE = "sandbox_filesystem_execute_denied"
_X_OK = 1
_SCRIPTS = 4
_FIRST_LINE = 256  # what the kernel reads of a script
# As the kernel reads it: blanks and tabs alone separate. What it would read otherwise is refused.
_LINE = pattern(rb"#![ \t]*(/[!-~\x80-\xff]*)(?:[ \t]+([^\n\0]*?))?[ \t]*\n").match
_SPLIT = b"-S"  # how `env` is told that its argument is several words
_WORD = pattern(rb"(?:/[\w.+/-]+|[\w.+][\w.+-]*)\Z").match
_CLIMBS = pattern(r"/\.\.?(?:/|\Z)").search


def judged(
    state: State, name: str, path: str | None, start: str | None = None, inner: str | None = None
) -> tuple[str, str]:
    """Return the file to start for a program as it is named, and its place by that name.

    Raise its refusal, or OSError. A bare name is looked up in `path`. `start` is the folder that
    the child enters first, where it does: relative names begin there. `inner` is the PATH that it
    looks up interpreters in.
    """
    place = located(name, path, start)
    return _judged(state, place, inner, by_name="/" not in name)


def judged_first(
    state: State, places: list[str], start: str | None, inner: str | None
) -> tuple[str, str]:
    """Return the one of several that a bare name could mean, as `judged` does."""
    place = _first([_from(start, each) for each in places], places[0].rpartition("/")[2])
    return _judged(state, place, inner, by_name=True)


def _judged(state: State, place: str, inner: str | None, *, by_name: bool) -> tuple[str, str]:
    found = _judged_file(state, place, by_name=by_name)
    file = found[0]
    for _ in range(_SCRIPTS):
        name = _interpreter(state, file)
        if name is None:
            return found
        if "/" not in name:
            place = _located_inside(state, name, inner or DEFAULT_PATH)
            file = _judged_file(state, place, by_name=True)[0]
        else:
            file = _judged_file(state, name, by_name=False)[0]
    raise refusal(state, _CODE, "execute", found[0], "too many scripts start each other")


def _judged_file(state: State, place: str, *, by_name: bool) -> tuple[str, str]:
    """Return a file to start, by a name that guarded code cannot change, and its place."""
    parent, _, name = place.rpartition("/")
    folder, real = _resolved(state, parent or "/"), _resolved(state, place)
    is_system = folder in SYSTEM_FOLDERS
    if not (is_system and by_name and name in state.dependencies):
        answer = about_path(state, "execute", real)
        if answer is not None:
            raise answer
    called = f"{folder.rstrip('/')}/{name}"
    # Scripts of the system may look at the name that they are started by.
    return called if is_system else real, called


def _resolved(state: State, place: str) -> str:
    try:
        return resolve(place)
    except Warning as error:
        raise refusal(state, _CODE, "execute", place, str(error.args[-1])) from None


def located(name: str, path: str | None, start: str | None = None) -> str:
    """Return where a program is, as the kernel or a look-up in PATH finds it; raise OSError."""
    if "/" in name:
        return _from(start, name)
    folders = (DEFAULT_PATH if path is None else path).split(":")
    return _first([_from(start, f"{folder or '.'}/{name}") for folder in folders], name)


def _first(places: list[str], name: str) -> str:
    for place in places:
        if _starts(place):
            return place
    number = EACCES if any(map(is_there, places)) else ENOENT
    raise OSError(number, strerror(number), name)


def _located_inside(state: State, name: str, path: str) -> str:
    """Return where an interpreter is that a script has looked up; raise its refusal, or OSError.

    Only folders that mean the same to everybody, wherever they are.
    """
    for folder in path.split(":"):
        if not folder.startswith("/") or _CLIMBS(folder):
            why = f"it is looked up in {folder!a}, a folder of PATH that is not written out"
            raise refusal(state, _CODE, "execute", name, why)
        if _starts(f"{folder}/{name}"):
            return f"{folder}/{name}"
    raise OSError(ENOENT, strerror(ENOENT), name)


def _from(start: str | None, path: str) -> str:
    return absolute(path if start is None or path.startswith("/") else f"{start}/{path}")


def _starts(place: str) -> bool:
    try:
        return S_ISREG(stat(place).st_mode) and may(place, _X_OK)
    except OSError:
        return False


def _interpreter(state: State, file: str) -> str | None:
    """Return the program that the kernel starts for a script, behind `env` the one that it does."""
    head = _head(file)
    if not head.startswith(b"#!"):
        return None
    line = _LINE(head)
    if line is None:
        why = "its first line does not name an interpreter plainly"
        raise refusal(state, _CODE, "execute", file, why)
    interpreter = line[1].decode("utf-8", "surrogateescape")
    if interpreter.rpartition("/")[2] != "env":
        return interpreter
    if _resolved(state, interpreter.rpartition("/")[0] or "/") not in SYSTEM_FOLDERS:
        _judged_file(state, interpreter, by_name=False)
    return _behind_env(state, file, line[2] or b"")


def _behind_env(state: State, file: str, argument: bytes) -> str:
    word = argument
    if argument.startswith(_SPLIT):
        word = argument.removeprefix(_SPLIT).replace(b"\t", b" ").strip(b" ").partition(b" ")[0]
    name = word.decode("utf-8", "surrogateescape")
    if not _WORD(word) or _CLIMBS(name):
        why = "its first line has `env` start something that is not one plain program"
        raise refusal(state, _CODE, "execute", file, why)
    return name


def _head(file: str) -> bytes:
    """Return what the kernel looks at to start a file; nothing where that cannot be read."""
    try:
        descriptor = open_passed(file, O_CLOEXEC | O_NONBLOCK, 0)
    except OSError:
        return b""
    try:
        head = read(descriptor, _FIRST_LINE)
    except OSError:
        return b""  # a folder, which does not start
    finally:
        close(descriptor)
    return head if len(head) == _FIRST_LINE else head + b"\n"
