"""A bypass that is broken off, by a signal for example, leaves no freedom behind."""

from __future__ import annotations

import contextvars
from types import FunctionType, SimpleNamespace
from typing import TYPE_CHECKING

from guard.confined import confined

from democrai_osguard.guard import contexts, process_guard_bypass_context, process_guard_context
from democrai_osguard.guard.sealed import core

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pytest


def _read(path: object) -> str:
    try:
        with open(str(path), encoding="utf-8") as file:
            return file.read()
    except PermissionError as error:
        return str(getattr(error, "code", error))


def _as_runtime(function: Callable[[Path], str]) -> Callable[[Path], str]:
    """Return the function as if a file of the runtime contained it."""
    code = function.__code__.replace(co_filename=contexts.__file__)
    made: Callable[[Path], str] = FunctionType(code, function.__globals__)
    return made


def _broken_off(path: Path) -> str:
    """Open a bypass as `with` does, and end before the block in which it would be closed."""
    process_guard_bypass_context().__enter__()
    return _read(path)


def test_a_bypass_ends_with_the_code_that_opened_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEMOCRAI_TEMP_DIR", str(tmp_path / "temp"))
    secret = tmp_path / "secret"
    secret.write_text("secret")
    runtime = _as_runtime(_broken_off)

    def check() -> object:
        with process_guard_context("m", "module"):
            return [_read(secret), runtime(secret), _read(secret)]

    denied = "sandbox_filesystem_denied"
    assert confined(check) == [denied, "secret", denied]


def test_the_caller_s_context_never_holds_the_token_of_a_bypass() -> None:
    """So nothing has to be put back, whatever interrupts."""
    context = contextvars.Context()
    state = SimpleNamespace(**vars(core.CLOSED))

    def act() -> list[bool]:
        inside = core.VAR.get()
        return [core.state_of(inside).bypass, context.get(core.VAR) is state.token]

    def call() -> object:
        core.VAR.set(state.token)
        return core.unguarded(state, act)

    assert context.run(call) == [True, True]


def _in_a_bypass(path: Path) -> str:
    with process_guard_bypass_context():
        return _read(path)


def test_a_bypass_is_for_the_runtime_s_own_code_and_the_hint_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEMOCRAI_TEMP_DIR", str(tmp_path / "temp"))
    secret = tmp_path / "secret"
    secret.write_text("secret")
    runtime = _as_runtime(_in_a_bypass)

    def check() -> object:
        outside = _in_a_bypass(secret)  # there is nothing to go around
        with process_guard_context("m", "module"):
            own = runtime(secret)
            try:
                _in_a_bypass(secret)  # the application's code, inside a guard
            except PermissionError as error:
                return [outside, own, str(error), getattr(error, "hint", "")]
        return "passed"

    refused = "sandbox_guard_denied:process_guard_bypass_context"
    hint = "It is for this package's own code. Act outside of the guard, or declare what is needed."
    assert confined(check) == ["secret", "secret", refused, hint]
