"""What befalls a helper on a real machine, while sandboxes live: an ordinary user's, and root's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from vm.conftest import QUICK
from vm.machine_operator import ALLOWED, FORBIDDEN, HELPER

if TYPE_CHECKING:
    from vm.machine_operator import Operator

EVERYTHING = "nft flush ruleset"
FLUSHES = (EVERYTHING,) if QUICK else ("iptables -F; iptables -X", EVERYTHING, "ip6tables -F")
JUMP = "grep -e '-j OSG-main'"
PATIENCE = 900.0  # seconds: the helper looks less often where a look takes long


RESIDENTS = {"resident": "ann"} if QUICK else {"resident": "ann", "resident-of-root": "root"}


@pytest.fixture(scope="module", autouse=True)
def _residents(operator: Operator) -> None:
    """Start the sandboxes that live through all of it, until the reboot."""
    for name, user in RESIDENTS.items():
        operator.start_resident(name, user)


def held(operator: Operator) -> bool:
    """Tell whether every one of them still has its way and nothing more."""
    return all(operator.held(name) for name in RESIDENTS)


def replaced(operator: Operator, before: int) -> None:
    """Wait until another helper has taken over and holds the sandboxes."""
    operator.machine.wait_until(
        f"pid=$(systemctl show -P MainPID {HELPER}); "
        f'[ "$pid" != 0 ] && [ "$pid" != {before} ] && systemctl is-active {HELPER}',
        seconds=PATIENCE,
    )
    sandboxes = operator.helper_status()["sandboxes"]
    assert isinstance(sandboxes, list)
    assert [each["populated"] for each in sandboxes] == [True] * len(RESIDENTS)


def test_a_killed_helper_is_replaced_and_the_sandbox_adopted(operator: Operator) -> None:
    before = operator.helper_pid()
    assert before != 0
    operator.machine.must_succeed(f"kill -9 {before}")
    assert held(operator)
    replaced(operator, before)
    assert held(operator)


def test_a_restarted_helper_adopts_the_sandbox(operator: Operator) -> None:
    before = operator.helper_pid()
    operator.machine.must_succeed(f"systemctl restart {HELPER}")
    replaced(operator, before)
    assert held(operator)


@pytest.mark.skipif(QUICK, reason="takes as long as the watchdog waits")
def test_a_frozen_helper_is_ended_by_its_watchdog_and_a_slow_one_never_was(
    operator: Operator,
) -> None:
    before = operator.helper_pid()
    operator.machine.must_succeed(f"kill -STOP {before}")
    assert held(operator)
    replaced(operator, before)
    assert held(operator)
    ended = operator.machine.must_succeed(f"journalctl -u {HELPER} | grep 'Watchdog timeout'")
    assert len(ended.splitlines()) == 1, ended


@pytest.mark.parametrize("flush", FLUSHES)
def test_a_flush_opens_nothing_and_is_repaired(operator: Operator, flush: str) -> None:
    look = "ip6tables-save" if flush.startswith("ip6") else "iptables-save"
    pid = operator.helper_pid()
    operator.machine.must_succeed(f"{look} | {JUMP}")
    # Stopped for a moment, or it would have repaired them before anybody could look.
    operator.machine.must_succeed(
        f"kill -STOP {pid}; {flush}; {look} | {JUMP}; gone=$?; kill -CONT {pid}; [ $gone = 1 ]"
    )
    assert held(operator)
    for look in ("iptables-save", "ip6tables-save"):
        operator.machine.wait_until(f"{look} | {JUMP}", seconds=PATIENCE)
    assert held(operator)


def test_sandboxes_can_be_made_after_all_that(operator: Operator) -> None:
    assert operator.heard(ALLOWED) == "ok"
    operator.machine.must_fail(operator.attempt(FORBIDDEN), "ann")
    operator.machine.must_succeed(operator.attempt_free(FORBIDDEN), "ann")


def test_after_a_reboot_nothing_old_is_left_and_new_sandboxes_hold(operator: Operator) -> None:
    operator.start_resident("before-the-reboot")
    operator.machine.reboot()
    operator.machine.wait_until(operator.attempt_free(FORBIDDEN))
    operator.helper_status()
    assert operator.heard(ALLOWED) == "ok"
    operator.machine.must_fail(operator.attempt(FORBIDDEN), "ann")
    status = operator.helper_status()
    assert (status["sandboxes"], status["layers"]) == ([], {"bpf": None, "firewall": None})
