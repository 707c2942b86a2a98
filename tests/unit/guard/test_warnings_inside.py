"""A warning in the midst of the guard's own code, which a collection may bring, changes nothing.

Each check runs in a fork, because a guard cannot be uninstalled.
"""

from __future__ import annotations

import gc
import threading
import warnings
from types import FunctionType
from typing import TYPE_CHECKING, Any

from guard.confined import confined

from democrai_osguard.guard import install, process_guard_context
from democrai_osguard.guard.installation import use_asker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_LEAST = 5  # private modules that have classes


def _classes(top: type = object) -> Iterator[type]:
    below: type
    for below in type.__subclasses__(top):
        yield below
        if below is not type:
            yield from _classes(below)


def _private_namespaces() -> list[dict[str, Any]]:
    """Return the namespaces of private modules, found as guarded code might find them."""
    private = (each for each in _classes() if str(each.__module__).startswith("sealed:"))
    functions = (value for each in private for value in vars(each).values())
    spaces = (each.__globals__ for each in functions if isinstance(each, FunctionType))
    return list({id(space): space for space in spaces}.values())


def _warn_in(space: dict[str, Any]) -> None:
    """Give a warning in a function that has this namespace."""
    warn = warnings.warn

    def left_open() -> None:
        warn("left open", ResourceWarning, stacklevel=1)

    FunctionType(left_open.__code__, space, "left_open", None, left_open.__closure__)()


def _entered() -> str:
    try:
        with process_guard_context("m", "module", allowed_paths=["/srv"]):
            return "entered"
    except PermissionError as error:
        return str(error)


def test_a_warning_in_private_code_closes_no_guard() -> None:
    def check() -> object:
        install()
        spaces = _private_namespaces()
        with warnings.catch_warnings(record=True) as shown:
            warnings.simplefilter("default")
            for space in spaces:
                _warn_in(space)
        return [len(spaces) > _LEAST, len(shown) == len(spaces), _entered()]

    assert confined(check) == [True, True, "entered"]


def test_a_warning_in_code_that_answers_spoils_no_answer(tmp_path: Path) -> None:
    def check() -> object:
        from democrai_osguard.policy import decide  # noqa: PLC0415 - it takes part in answers

        def answer(*_: object) -> bool:
            with warnings.catch_warnings(record=True):
                warnings.simplefilter("default")
                _warn_in(vars(decide))
            return True

        use_asker(answer)
        with process_guard_context("m", "module"):
            return (tmp_path / "file").read_text(encoding="utf-8")

    (tmp_path / "file").write_text("read", encoding="utf-8")
    assert confined(check) == "read"


def test_a_guard_that_ends_meanwhile_spoils_no_answer(tmp_path: Path) -> None:
    def check() -> object:
        def answer(*_: object) -> bool:
            other = threading.Thread(target=_entered)
            other.start()
            other.join()
            return True

        use_asker(answer)
        with process_guard_context("m", "module"):
            return (tmp_path / "file").read_text(encoding="utf-8")

    (tmp_path / "file").write_text("read", encoding="utf-8")
    assert confined(check) == "read"


def test_what_somebody_puts_in_the_place_of_warnings_closes() -> None:
    def check() -> object:
        class Registry(dict[Any, Any]):
            pass

        install()
        _private_namespaces()[0]["__warningregistry__"] = Registry()
        return _entered()

    assert confined(check) == "sandbox_guard_denied:changed classes"


def test_a_file_that_is_collected_while_a_guard_is_made_closes_none() -> None:
    def check() -> object:
        class Box:
            pass

        def drop() -> None:
            box: Any = Box()
            box.me, box.file = box, open("/dev/null", encoding="utf-8")  # noqa: SIM115 - left open

        _entered()
        found = set()
        with warnings.catch_warnings():
            warnings.simplefilter("default")
            warnings.showwarning = lambda *_, **__: None  # said to nobody
            gc.set_threshold(1)
            for number in range(400):
                drop()
                with process_guard_context("m", "module", allowed_paths=[f"/srv/{number}"]):
                    pass
                found.add(_entered())
        return sorted(found)

    assert confined(check) == ["entered"]
