"""What code drops is gone at once: a look at the stack, to learn who acts, keeps nothing of it.

Else a file that nobody holds any more stays open, and what was written to it is not there.
"""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from typing import TYPE_CHECKING

import pytest
from guard.confined import confined

from democrai_osguard.guard import process_guard_bypass_context, process_guard_context

if TYPE_CHECKING:
    from collections.abc import Callable


class _Thing:
    pass


def _use() -> weakref.ref[_Thing]:
    """Hold something while a file is opened; return what tells whether it is still held."""
    thing = _Thing()
    with open("/dev/null", encoding="utf-8"):
        return weakref.ref(thing)


def _inside() -> weakref.ref[_Thing]:
    with process_guard_context("m", "module"):
        return _use()


def _after_an_event_loop() -> weakref.ref[_Thing]:
    with process_guard_context("m", "module"):
        asyncio.run(asyncio.sleep(0))
    return _use()


def _in_a_bypass() -> weakref.ref[_Thing]:
    with process_guard_bypass_context():
        return _use()


def _in_a_guarded_thread() -> weakref.ref[_Thing]:
    found: list[weakref.ref[_Thing]] = []
    with process_guard_context("m", "module"):
        thread = threading.Thread(target=lambda: found.append(_use()))
        thread.start()
        thread.join()
    return found[0]


@pytest.mark.parametrize("use", [_inside, _after_an_event_loop, _in_a_bypass, _in_a_guarded_thread])
def test_what_is_dropped_is_gone_without_a_collection(
    use: Callable[[], weakref.ref[_Thing]],
) -> None:
    def check() -> object:
        with process_guard_context("m", "module"):
            pass
        gc.disable()
        return use()() is None

    assert confined(check) is True
