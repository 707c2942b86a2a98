"""A short run of every fuzzer, the same each time; `make fuzz` runs them longer."""

from __future__ import annotations

import pytest
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
