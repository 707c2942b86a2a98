"""A clock that jumps: what was decided last stands, nothing opens by itself, the log stays whole.

The wall clock cannot be given to a process of its own, so it jumps where the service asks for it.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from approvals.cases import ADA, read

from democrai_osguard.approvals import ApprovalService, open_store
from democrai_osguard.audit import AuditLog, verify

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NOW = 1_800_000_000.0
YEAR = 365 * 86400.0


class Clock:
    """Says what it is told to."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def service(tmp_path: Path, clock: Clock) -> Iterator[ApprovalService]:
    made = ApprovalService(
        open_store(f"sqlite://{tmp_path}/store/approvals.sqlite3"),
        audit=AuditLog(f"{tmp_path}/audit", clock=clock),
        clock=clock,
        pending_ttl=3600,
    )
    yield made
    made.close()
    assert verify(f"{tmp_path}/audit").sound


@pytest.mark.parametrize("jump", [-YEAR, -1.0, 0.0, YEAR, -NOW])
def test_the_newest_decision_stands_whatever_the_clock_says(
    service: ApprovalService, clock: Clock, jump: float
) -> None:
    service.approve_permanently(service.register(read("/srv/a")).id, ADA)
    assert service.check(read("/srv/a")).code == "permanent_approval"
    clock.now += jump
    second = service.register(read("/srv/a"))
    assert service.deny(second.id, ADA, overrule=True).applied
    assert service.check(read("/srv/a")).code == "denied"
    clock.now = NOW
    assert service.check(read("/srv/a")).code == "denied"
    third = service.register(read("/srv/a"))
    assert service.approve_permanently(third.id, ADA, overrule=True).applied
    assert service.check(read("/srv/a")).code == "permanent_approval"


def test_a_jump_forward_expires_a_question_and_answers_none(
    service: ApprovalService, clock: Clock
) -> None:
    asked = service.register(read("/srv/a"))
    clock.now += YEAR
    assert service.list_requests() == []
    assert service.check(read("/srv/a")).code == "not_enabled"
    clock.now -= 2 * YEAR
    assert service.check(read("/srv/a")).code == "not_enabled"
    again = service.register(read("/srv/a"))
    assert service.approve_permanently(again.id, ADA).applied
    assert service.check(read("/srv/a")).code == "permanent_approval"
    assert asked.id


def test_a_revocation_from_before_its_approval_still_counts(
    service: ApprovalService, clock: Clock
) -> None:
    outcome = service.approve_permanently(service.register(read("/srv/a")).id, ADA)
    assert outcome.decision is not None
    clock.now -= YEAR
    service.revoke(outcome.decision.id, ADA)
    clock.now += 2 * YEAR
    assert service.check(read("/srv/a")).code == "not_enabled"


@pytest.mark.parametrize("jump", [-YEAR, YEAR])
def test_a_call_that_waits_is_answered_by_a_person_and_not_by_the_clock(
    service: ApprovalService, clock: Clock, jump: float
) -> None:
    asked = service.register(read("/srv/a"), held=True)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(service.wait_for_answer, asked.id, 120)
        clock.now += jump
        until = time.monotonic() + 60
        while (service.get(asked.id).expires_at or 0) <= clock.now:  # until it says that it waits
            assert time.monotonic() < until
            time.sleep(0.05)
        assert not waiting.done()
        assert service.approve_once(asked.id, ADA).applied
        assert waiting.result().state == "once"
    assert service.check(read("/srv/a")).code == "not_enabled"  # once is once
