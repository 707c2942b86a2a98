"""Threads that load modules while another one enters its guard."""

from __future__ import annotations

import gc
import importlib.machinery
import itertools
import sys
import threading
import types
from typing import Any

from guard.confined import confined

from democrai_osguard import process_guard_context

_OURS = "democrai_osguard.guard.loaded_by_a_test"
_ROUNDS = 4  # forks: a guard is put in place once in each
_MANY = 6000  # names: the interpreter has 2000 pairs at hand, and makes the others


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


def test_a_collection_may_let_others_in_while_the_guard_is_put_in_place() -> None:
    """On 3.11 one can begin wherever an object is made, and run what changes the same names."""

    def check() -> object:
        changed, numbers = types.ModuleType("changed"), itertools.count()
        sys.modules["changed"] = changed
        for names in (sys.modules, vars(changed)):
            names.update({f"many {number}": types.ModuleType("many") for number in range(_MANY)})

        def load(_phase: str, _info: dict[str, int]) -> None:
            for names in (sys.modules, vars(changed)):
                names[f"late {next(numbers)}"] = types.ModuleType("late")

        gc.callbacks.append(load)
        gc.set_threshold(100)
        with process_guard_context("m", "module"):
            gc.callbacks.remove(load)
            return "entered"

    assert confined(check) == "entered"


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
