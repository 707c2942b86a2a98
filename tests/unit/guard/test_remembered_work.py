"""What is remembered of guards and their code: for as long as somebody can use it, and no longer.

Each check runs in a fork, because a guard cannot be uninstalled.
"""

from __future__ import annotations

import contextvars
from types import SimpleNamespace

from guard.confined import confined

from democrai_osguard.guard import current_guard, process_guard_context
from democrai_osguard.guard.sealed import core


def test_a_guard_that_was_left_holds_for_whoever_carries_it() -> None:
    def check() -> object:
        with process_guard_context("a", "module"):
            carried = contextvars.copy_context()
        for _ in range(2):  # guards that nobody carries are forgotten by the next one
            with process_guard_context("b", "module"):
                pass
        guard = carried.run(current_guard)
        return None if guard is None else str(guard.subject)

    assert confined(check) == "module:a"


def test_code_is_known_until_nobody_can_run_it() -> None:
    space: dict[str, object] = {}
    exec("def one(): pass\ndef other(): pass\none = one.__code__", space)  # noqa: S102 - what guarded code would do
    state = SimpleNamespace(token=core.new_token())
    for each in (space["one"], space["other"].__code__):  # type: ignore[attr-defined] # a function
        core.mark(each, state)  # type: ignore[arg-type] # code
    del each
    assert len(core.MARKED) == 2
    core._forget_marks()  # noqa: SLF001 - it happens after thousands
    assert len(core.MARKED) == 2
    space.clear()
    core._forget_marks()  # noqa: SLF001 - as above
    assert not core.MARKED
    core.watch()
