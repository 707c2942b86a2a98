"""What befalls a helper on a real machine, while a sandbox of an ordinary user lives."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from vm.operator import ALLOWED, FORBIDDEN, HELPER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vm.operator import Operator

FLUSHES = ("iptables -F; iptables -X", "nft flush ruleset", "ip6tables -F; ip6tables -X")


@pytest.fixture(scope="module")
def resident(operator: Operator) -> Iterator[str]:
    """Return the name of a sandbox that lives through all of it."""
    operator.start_resident("resident")
    yield "resident"
    operator.end_resident("resident")


def replaced(operator: Operator, before: int) -> None:
    """Wait until another helper has taken over and holds the sandbox."""
    operator.machine.wait_until(
        f"pid=$(systemctl show -P MainPID {HELPER}); "
        f'[ "$pid" != 0 ] && [ "$pid" != {before} ] && systemctl is-active {HELPER}',
        seconds=300,
    )
    sandboxes = operator.helper_status()["sandboxes"]
    assert isinstance(sandboxes, list)
    assert [each["populated"] for each in sandboxes] == [True]


def test_a_killed_helper_is_replaced_and_the_sandbox_adopted(
    operator: Operator, resident: str
) -> None:
    before = operator.helper_pid()
    assert before != 0
    operator.machine.must_succeed(f"kill -9 {before}")
    assert operator.held(resident)
    replaced(operator, before)
    assert operator.held(resident)


def test_a_restarted_helper_adopts_the_sandbox(operator: Operator, resident: str) -> None:
    before = operator.helper_pid()
    operator.machine.must_succeed(f"systemctl restart {HELPER}")
    replaced(operator, before)
    assert operator.held(resident)


@pytest.mark.parametrize("flush", FLUSHES)
def test_a_flush_opens_nothing_and_is_repaired(
    operator: Operator, resident: str, flush: str
) -> None:
    operator.machine.must_succeed("iptables-save | grep -q OSG-main")
    operator.machine.run(flush)
    assert operator.held(resident)
    operator.machine.wait_until("iptables-save | grep -e '-j OSG-main'", seconds=300)
    operator.machine.wait_until("ip6tables-save | grep -e '-j OSG-main'", seconds=300)
    assert operator.held(resident)


def test_sandboxes_can_be_made_after_all_that(operator: Operator) -> None:
    assert operator.machine.must_succeed(operator.attempt(ALLOWED), "ann").strip() == "ok"
    operator.machine.must_fail(operator.attempt(FORBIDDEN), "ann")
    operator.machine.must_succeed(operator.attempt_free(FORBIDDEN), "ann")


def test_after_a_reboot_nothing_old_is_left_and_new_sandboxes_hold(operator: Operator) -> None:
    operator.start_resident("before-the-reboot")
    operator.machine.reboot()
    operator.machine.wait_until(operator.attempt_free(FORBIDDEN))
    operator.helper_status()
    assert operator.machine.must_succeed(operator.attempt(ALLOWED), "ann").strip() == "ok"
    operator.machine.must_fail(operator.attempt(FORBIDDEN), "ann")
    status = operator.helper_status()
    assert (status["sandboxes"], status["layers"]) == ([], {"bpf": None, "firewall": None})
