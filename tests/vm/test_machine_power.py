"""The power goes in the middle of writing: what was acknowledged is there, and all is whole."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

import pytest
from vm.machine_operator import ALLOWED, FORBIDDEN, RULES, SCRIPTS

if TYPE_CHECKING:
    from vm.machine_operator import Operator

CUTS = 3
PYTHON = "$(dirname $(readlink /usr/local/bin/democrai-osguard))/python3 -I"
STATE = "DEMOCRAI_STATE_DIR=/var/lib/decisions"
ENOUGH = 20
DEADLINE = 600.0


def acknowledged(operator: Operator, skip: int) -> list[int]:
    """Return the numbers that the machine wrote to its console after so many bytes."""
    text = operator.machine.console.read_bytes()[skip:].decode(errors="replace")
    return [int(number) for number in re.findall(r"acknowledged (\d+)\r?\n", text)]


@pytest.mark.parametrize("cut", range(CUTS))
def test_a_cut_of_power_loses_nothing_that_was_acknowledged(operator: Operator, cut: int) -> None:
    machine = operator.machine
    machine.must_succeed("rm -rf /var/lib/decisions; sync")
    seen = machine.console.stat().st_size
    machine.must_succeed(f"systemd-run --quiet --setenv={STATE} -- {PYTHON} {SCRIPTS}/writer.py")
    machine.must_succeed(
        "systemd-run --quiet -- sh -c "
        f"'while true; do /usr/local/bin/democrai-launch {RULES} -- /bin/true; done'"
    )
    until = time.monotonic() + DEADLINE
    while len(acknowledged(operator, seen)) < ENOUGH * (cut + 1):
        assert time.monotonic() < until, "the machine decides too slowly"
        time.sleep(0.05)
    machine.cut_power()
    numbers = acknowledged(operator, seen)
    machine.boot()
    missing = machine.must_succeed(f"{STATE} {PYTHON} {SCRIPTS}/writer.py {max(numbers) + 1}")
    assert missing.strip() == "[]"
    machine.must_succeed(f"{STATE} democrai-osguard audit verify")
    machine.wait_until(operator.attempt_free(FORBIDDEN))
    operator.helper_status()
    assert operator.heard(ALLOWED) == "ok"
    machine.must_fail(operator.attempt(FORBIDDEN), "ann")
    assert operator.helper_status()["sandboxes"] == []
