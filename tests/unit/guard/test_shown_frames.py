"""What code sees of the stack: all of its own, where nothing of the guard's is in between."""

from __future__ import annotations

import asyncio
import os
import sys
import traceback
from typing import TYPE_CHECKING

from guard.confined import confined

from democrai_osguard import process_guard_context

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path
    from types import FrameType


def _names() -> list[str]:
    return [entry.name for entry in traceback.extract_stack()]


def _in_a_generator() -> list[str]:
    return next(_names() for _ in [None])


async def _in_a_coroutine() -> list[str]:
    await asyncio.sleep(0)
    return _names()


def _stacks() -> list[list[str]]:
    return [_names(), _in_a_generator(), asyncio.run(_in_a_coroutine())]


def test_the_stack_of_guarded_code_is_what_it_is_without_a_guard() -> None:
    def check() -> object:
        free = _stacks()
        with process_guard_context("m", "module"):
            guarded = _stacks()
        return free == guarded, [stack[-2:] for stack in guarded]

    same, ends = confined(check)
    assert same
    assert ends[0] == ["_stacks", "_names"]
    assert ends[1][-1] == ends[2][-1] == "_names"


def test_a_refusal_by_the_hook_can_be_told_in_full() -> None:
    def check() -> object:
        with process_guard_context("m", "module"):
            try:
                sys.audit("open", "/etc/shadow", "r", 0)
            except PermissionError:
                return traceback.format_exc()
        return ""

    told = confined(check)
    assert "in check" in told
    assert "sandbox_filesystem_denied" in told


def test_the_stack_ends_above_the_guard_and_goes_on_once_it_is_left(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    def check() -> object:
        frames: list[FrameType] = []
        seen: list[bool] = []

        def looking() -> Generator[None]:
            frames.append(sys._getframe())  # noqa: SLF001 - there is no public name for it
            while True:
                yield
                seen.append(frames[0].f_back is not None)

        held = looking()

        def opener(path: str, flags: int) -> int:
            next(held)
            return os.open(path, flags)

        with process_guard_context("m", "module", allowed_paths=[str(tmp_path)]):
            next(held)
            next(held)
            with open(tmp_path / "file", opener=opener, encoding="utf-8"):
                next(held)
        return seen

    assert confined(check) == [True, False, True]
