"""Threads of guards, and what the application lets threads be traced by: a debugger, coverage.

`threading` hands each new thread to that function. A guarded one goes on without it, since it
would see the guard's own frames; what guarded code sets itself is refused there, as everywhere.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from democrai_osguard.guard.patches.rows import Replacement

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_KEPT = {"settrace": "_trace_hook", "setprofile": "_profile_hook"}  # and where `threading` has it


class _Interpreter:
    """Stands for `sys` in `threading`, which starts traces by it."""

    def __init__(self, doors: Mapping[str, Any]) -> None:
        self._doors = doors

    def __getattr__(self, name: str) -> Any:
        found = getattr(sys, name)
        if name in _KEPT and self._doors["carried"]() is not None:
            return _without_the_applications(self._doors, found)
        return found


def _without_the_applications(
    doors: Mapping[str, Any], start: Callable[[Any], None]
) -> Callable[[Any], None]:
    def start_others(function: Any) -> None:
        if not doors["is_tracer"](function):
            start(function)

    return start_others


def _interpreter(doors: Mapping[str, Any]) -> Callable[[Any], Any]:
    return lambda _original: _Interpreter(doors)


def _noted(doors: Mapping[str, Any], kind: str) -> Callable[[Any], Any]:
    def make(original: Any) -> Any:
        doors["note_tracer"](kind, getattr(sys.modules["threading"], _KEPT[kind]))

        def note(func: Any) -> None:
            doors["note_tracer"](kind, func)
            original(func)

        return note

    return make


def tracing_patches(doors: Mapping[str, Any]) -> tuple[Replacement, ...]:
    """Return the rows of this area."""
    rows = (Replacement("threading", kind, _noted(doors, kind)) for kind in _KEPT)
    return (*rows, Replacement("threading", "_sys", _interpreter(doors)))
