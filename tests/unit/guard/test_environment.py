"""The environment by each of its names: `DEMOCRAI_*` stays the runtime's, the rest is free."""

from __future__ import annotations

import importlib
import os
import posix
from typing import TYPE_CHECKING, Any

import pytest
from guard.confined import confined

from democrai_osguard.guard import process_guard_context

if TYPE_CHECKING:
    from collections.abc import Callable

_NAME = b"DEMOCRAI_FOO"
_EARLY = posix.environ  # from before any guard
CHANGES: dict[str, Callable[[Any], object]] = {
    "item": lambda data: data.__setitem__(_NAME, b"spoof"),
    "delete": lambda data: data.__delitem__(_NAME),
    "pop": lambda data: data.pop(_NAME),
    "pop with a default": lambda data: data.pop(_NAME, None),
    "popitem": lambda data: [data.popitem() for _ in range(len(data))],
    "clear": lambda data: data.clear(),
    "update": lambda data: data.update({_NAME: b"spoof"}),
    "update by pairs": lambda data: data.update([(_NAME, b"spoof")]),
    "union": lambda data: data.__ior__({_NAME: b"spoof"}),
}


def _data(where: str) -> Any:  # noqa: ANN401 - there is no public name for its type
    if where == "posix":
        return posix.environ
    return os.environ._data  # type: ignore[attr-defined]  # noqa: SLF001 - there is no public name for it


def _outcome(change: Callable[[Any], object], data: Any) -> str:  # noqa: ANN401 - as above
    try:
        change(data)
    except PermissionError as error:
        return str(error)
    return "changed"


@pytest.mark.parametrize("where", ["posix", "os"])
@pytest.mark.parametrize("way", CHANGES)
def test_a_variable_of_the_runtime_is_refused_by_every_method(way: str, where: str) -> None:
    def check() -> object:
        os.environ["DEMOCRAI_FOO"] = "genuine"
        with process_guard_context("m", "module"):
            outcome = _outcome(CHANGES[way], _data(where))
        return [outcome, os.environ["DEMOCRAI_FOO"]]

    outcome, value = confined(check)
    # A way that changes all of them meets another one that is refused before.
    assert outcome.startswith(("sandbox_env_denied:DEMOCRAI_", "sandbox_env_denied:HOME"))
    assert value == "genuine"


@pytest.mark.parametrize("where", ["posix", "os"])
def test_a_new_variable_of_the_runtime_is_refused(where: str) -> None:
    def check() -> object:
        os.environ.pop("DEMOCRAI_FOO", None)
        with process_guard_context("m", "module"):
            found = _outcome(lambda data: data.setdefault(_NAME, b"spoof"), _data(where))
        return [found, "DEMOCRAI_FOO" in os.environ]

    assert confined(check) == ["sandbox_env_denied:DEMOCRAI_FOO", False]


@pytest.mark.parametrize("way", ["item", "update"])
def test_the_dict_that_somebody_kept_from_before_is_not_the_environment_any_more(way: str) -> None:
    def check() -> object:
        os.environ["DEMOCRAI_FOO"] = "genuine"
        with process_guard_context("m", "module"):
            CHANGES[way](_EARLY)
        return os.environ["DEMOCRAI_FOO"]

    assert confined(check) == "genuine"


def test_a_second_copy_of_os_has_the_same_environment() -> None:
    def check() -> object:
        with process_guard_context("m", "module"):
            importlib.reload(os)
            return _outcome(CHANGES["item"], _data("os"))

    assert confined(check) == "sandbox_env_denied:DEMOCRAI_FOO"


def test_every_other_variable_is_changed_as_a_dict_is() -> None:
    def check() -> object:
        with process_guard_context("m", "module"):
            data = _data("posix")
            data.update({b"FREE": b"1"})
            found = [data.setdefault(b"FREE", b"2") == b"1", data.pop(b"FREE") == b"1"]
            return [*found, data.pop(b"FREE", None), "FREE" in os.environ]

    assert confined(check) == [True, True, None, False]
