"""Runners of an event loop: each run is under the guard of whoever asks for it.

Each check runs in a fork, because a guard cannot be uninstalled.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars

import pytest
from guard.confined import confined

from democrai_osguard.guard import current_guard, install, process_guard_context


async def _who() -> str | None:
    """Return who acts, after a turn of the loop."""
    await asyncio.sleep(0)
    guard = current_guard()
    return None if guard is None else " > ".join(map(str, guard.subject_chain))


def test_a_runner_works_for_whoever_runs_it_and_not_for_the_first() -> None:
    def check() -> object:
        install()
        runner, found = asyncio.Runner(), []
        for name in ("a", None, "b", "a", None):
            with process_guard_context(name, "module") if name else contextlib.nullcontext():
                found.append(runner.run(_who()))
        runner.close()
        return found

    assert confined(check) == ["module:a", None, "module:b", "module:a", None]


@pytest.mark.parametrize("name", ["a", None])
def test_a_runner_keeps_what_its_work_notes(name: str | None) -> None:
    def check() -> object:
        install()
        note = contextvars.ContextVar("note", default=0)

        async def count() -> int:
            note.set(note.get() + 1)
            return note.get()

        runner = asyncio.Runner()
        with process_guard_context(name, "module") if name else contextlib.nullcontext():
            counted = [runner.run(count()) for _ in range(3)]
        counted += [runner.run(count()) for _ in range(2)]
        runner.close()
        return counted

    assert confined(check) == [1, 2, 3, 4, 5]


def test_a_runner_is_given_the_context_that_it_is_told() -> None:
    def check() -> object:
        install()
        runner = asyncio.Runner()
        with process_guard_context("a", "module"):
            kept = contextvars.copy_context()
        found = [
            runner.run(_who(), context=context) for context in (kept, None, contextvars.Context())
        ]
        with process_guard_context("b", "module"):
            found.append(runner.run(_who(), context=contextvars.Context()))
        runner.close()
        return found

    assert confined(check) == ["module:a", None, None, "module:b"]
