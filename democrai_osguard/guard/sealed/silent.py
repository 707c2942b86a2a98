"""C functions that the interpreter never reports: judged and called in here, and nowhere else.

No hook stands behind them, so whoever holds the original is past the guard. It is kept here.
"""

from __future__ import annotations

from types import BuiltinFunctionType
from typing import Any

from democrai_osguard.guard.sealed.answers import refusal
from democrai_osguard.guard.sealed.core import State, current
from democrai_osguard.guard.sealed.events import event_path
from democrai_osguard.guard.sealed.opening import plainly

_NEVER, _DIRECTIVE = "never", "directive"
_SHARED = "/dev/shm/"  # noqa: S108 - where the C library keeps it
# What each does to the file that an argument names: operation, position, where names begin.
ROWS: dict[str, tuple[str, int, str]] = {
    "_dbm.open": ("write", 0, ""),
    "_gdbm.open": ("write", 0, ""),
    "readline.read_init_file": ("read", 0, ""),
    "readline.read_history_file": ("read", 0, ""),
    "readline.write_history_file": ("write", 0, ""),
    "readline.append_history_file": ("write", 1, ""),
    "readline.parse_and_bind": (_DIRECTIVE, 0, ""),
    "_posixshmem.shm_open": ("write", 0, _SHARED),
    "_posixshmem.shm_unlink": ("delete", 0, _SHARED),
    # Other roots, other mounts, a file that the interpreter writes by itself: paths lose their
    # meaning.
    "posix.chroot": (_NEVER, 0, ""),
    "posix.setns": (_NEVER, 0, ""),
    "posix.unshare": (_NEVER, 0, ""),
    "sys.activate_stack_trampoline": (_NEVER, 0, ""),
    # It can keep what nobody holds any more where everybody finds it, our frames among it.
    "gc.set_debug": (_NEVER, 0, ""),
}
_ORIGINALS: dict[str, Any] = {}


def keep(name: str, original: Any) -> None:
    """Keep the original of a row: the first one, and none that somebody wrote in Python."""
    genuine = type(original) is BuiltinFunctionType and name.endswith(f".{original.__name__}")
    if genuine and name in ROWS:
        _ORIGINALS.setdefault(name, original)


def act(name: str, values: tuple[Any, ...], named: dict[str, Any]) -> object:
    """Do what a function of the table does, as far as the active guard allows."""
    state = current()
    if state is None:
        return _ORIGINALS[name](*values, **named)
    values, named = tuple(values), dict(named)
    plainly(values)
    plainly(named.values())
    answer = _about(state, name, values, named)
    return _ORIGINALS[name](*values, **named) if answer is None else answer


def _about(
    state: State, name: str, values: tuple[Any, ...], named: dict[str, Any]
) -> Warning | None:
    operation, position, front = ROWS[name]
    if operation == _NEVER:
        entry = name.replace("posix.", "os.")
        return refusal(state, "sandbox_introspection_denied", None, entry)
    path = values[position] if position < len(values) else named.get("path")
    if operation == _DIRECTIVE:
        return _about_directive(state, path)
    if path is None:
        why = "it would choose the file by itself"
        return refusal(state, "sandbox_filesystem_denied", operation, name, why)
    if front:
        text = path if type(path) is str else path.decode("utf-8", "surrogateescape")
        path = front + text.lstrip("/")
    return event_path(state, operation, path, follow=True)


def _about_directive(state: State, line: Any) -> Warning | None:
    """Refuse a line of readline's own language that reads a file, and complains about each word."""
    if type(line) is not str or not line.lstrip().startswith("$"):
        return None
    why = "it may read a file that is not named as one"
    return refusal(state, "sandbox_filesystem_denied", "read", "readline.parse_and_bind", why)
