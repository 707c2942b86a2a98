"""Threads inside of guards, where the application lets threads be traced, as a debugger does.

Each check runs in a fork, because a guard cannot be uninstalled.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest
from guard.confined import confined

from democrai_osguard.guard import install, process_guard_context

if TYPE_CHECKING:
    from collections.abc import Callable

_KINDS = ("settrace", "setprofile")
_SECONDS = 5


def _threaded(seen: list[object]) -> None:
    """Note what a new thread is traced by, and whether it ran at all."""
    thread = threading.Thread(target=lambda: seen.append([sys.gettrace(), sys.getprofile()]))
    thread.start()
    thread.join(_SECONDS)


def _set(kind: str, function: object) -> None:
    getattr(threading, kind)(function)


@pytest.mark.parametrize("kind", _KINDS)
@pytest.mark.parametrize("early", [True, False])
def test_a_thread_of_a_guard_runs_without_the_applications_tracer(
    kind: str, *, early: bool
) -> None:
    def check() -> object:
        def tracer(*_: object) -> None:
            """See everything."""

        if not early:
            install()
        _set(kind, tracer)
        seen: list[Any] = []
        with process_guard_context("m", "module"):
            _threaded(seen)
        _threaded(seen)
        return [[each is tracer for each in row] for row in seen]

    free = [kind == each for each in _KINDS]
    assert confined(check) == [[False, False], free]


def test_work_in_a_thread_comes_back() -> None:
    def check() -> object:
        threading.settrace(lambda *_: None)

        async def main() -> int:
            with process_guard_context("m", "module"):
                return await asyncio.wait_for(asyncio.to_thread(len, "abc"), _SECONDS)

        return asyncio.run(main())

    assert confined(check) == len("abc")


def _by_name(kind: str, function: object) -> None:
    hooks = {"settrace": "_trace_hook", "setprofile": "_profile_hook"}
    setattr(threading, hooks[kind], function)


@pytest.mark.parametrize("kind", _KINDS)
@pytest.mark.parametrize("way", [_set, _by_name])
def test_what_guarded_code_sets_is_refused(kind: str, way: Callable[[str, object], None]) -> None:
    def check() -> object:
        refused: list[str] = []

        def tracer(*_: object) -> None:
            """See what was meant for somebody else."""

        def note(args: Any) -> None:  # noqa: ANN401 - of two kinds
            refused.append(str(args.exc_value))

        _set(kind, lambda *_: None)
        threading.excepthook = note
        sys.unraisablehook = note
        seen: list[Any] = []
        with process_guard_context("m", "module"):
            way(kind, tracer)
            _threaded(seen)
        return [seen, refused]

    assert confined(check) == [[], [f"sandbox_introspection_denied:sys.{kind}"]]
