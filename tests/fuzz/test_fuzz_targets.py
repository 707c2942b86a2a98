"""A short run of every fuzzer, the same each time; `make fuzz` runs them longer."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from fuzz import run
from fuzz.targets import TARGETS
from host_features import require
from hypothesis import HealthCheck, settings

_EXAMPLES = {"patch": 60, "page": 40, "audit log": 60}


@pytest.mark.parametrize("name", TARGETS)
def test_what_must_hold_holds(name: str) -> None:
    if name == "patch":
        require("git")  # which says what a patch touches
    once = settings(
        max_examples=_EXAMPLES.get(name, 150),
        derandomize=True,  # the same inputs on every run: a failure is a change of the code
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    once(TARGETS[name].property())()


def test_without_atheris_one_round_follows_another(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run, "_ROUND", 3)
    moments = iter([0.0, 1.0, 2.0, 3.0])  # two more rounds after the first
    monkeypatch.setattr(run, "time", SimpleNamespace(monotonic=lambda: next(moments)))
    run._with_hypothesis("target", 2.5)  # noqa: SLF001 - as the program does where there is none
    assert capsys.readouterr().out == "  rounds of 3 inputs: 3\n"
