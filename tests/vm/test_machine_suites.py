"""The kernel and egress tests of this tree, run in the machine against the installed wheel."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from vm.operator import Operator

HOURS = 3600.0
RUNS = (
    ("root", "tests/kernel"),
    ("ann", "tests/kernel"),
    ("root", "tests/root"),
    ("ann", "tests/guard/test_coverage.py"),
)


@pytest.fixture(scope="module")
def python(operator: Operator) -> str:
    """Return a Python that finds the installed wheel and what the tests import."""
    operator.machine.must_succeed(
        "python3 -m venv --without-pip --system-site-packages /opt/tests && "
        "{ echo /payload/wheels/site; ls -d /opt/democrai-osguard/*/lib/python3*/site-packages; } "
        "> $(ls -d /opt/tests/lib/python3*/site-packages)/payload.pth"
    )
    for user in ("root", "ann"):
        home = operator.machine.must_succeed("echo ~", user).strip()
        operator.machine.must_succeed(
            f"rm -rf {home}/work && cp -r /payload/tree {home}/work", user
        )
    return "/opt/tests/bin/python"


@pytest.mark.parametrize(("user", "folder"), RUNS)
def test_the_tests_pass_in_the_machine(
    operator: Operator, python: str, user: str, folder: str
) -> None:
    said = operator.machine.must_succeed(
        f"cd ~/work && {python} -m pytest -q -p no:cacheprovider {folder}", user, seconds=HOURS
    )
    sys.stdout.write(said)
    assert " passed" in said
