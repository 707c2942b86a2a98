"""Threads that load modules while another one enters its guard."""

from __future__ import annotations

import importlib.machinery
import sys
import threading
import types
from typing import Any

from guard.confined import confined

from democrai_osguard import process_guard_context

_OURS = "democrai_osguard.guard.loaded_by_a_test"
_ROUNDS = 4  # forks: a guard is put in place once in each


def test_modules_may_come_and_go_while_the_guard_is_put_in_place() -> None:
    def check() -> object:
        sys.setswitchinterval(1e-6)
        done = threading.Event()

        def load() -> None:
            while not done.is_set():
                for number in range(50):
                    sys.modules[f"loaded {number}"] = types.ModuleType("loaded")
                for number in range(50):
                    del sys.modules[f"loaded {number}"]

        thread = threading.Thread(target=load)
        thread.start()
        try:
            with process_guard_context("m", "module"):
                return "entered"
        finally:
            done.set()
            thread.join()

    assert [confined(check) for _ in range(_ROUNDS)] == ["entered"] * _ROUNDS


def test_a_module_that_is_still_being_loaded_keeps_the_names_that_it_gets_later() -> None:
    def check() -> object:
        module = types.ModuleType(_OURS)
        spec: Any = importlib.machinery.ModuleSpec(_OURS, None)
        module.__spec__ = spec
        spec._initializing = True  # noqa: SLF001 - as importlib says it
        sys.modules[_OURS] = module
        with process_guard_context("m", "module"):
            pass
        module.late = True  # type: ignore[attr-defined] # it has just been loaded
        spec._initializing = False  # noqa: SLF001 - likewise
        with process_guard_context("m", "module"):
            module.planted = True  # type: ignore[attr-defined] # by guarded code
        with process_guard_context("m", "module"):
            pass
        return sorted(name for name in vars(module) if not name.startswith("_"))

    assert confined(check) == ["late"]
