"""Registering requests, and what is no request, the same on both stores."""

from __future__ import annotations

from dataclasses import replace

import pytest
from approvals.cases import ADA, MODULE, read

from democrai_osguard import Subject, TargetError
from democrai_osguard.access import Scope
from democrai_osguard.approvals import (
    ApprovalService,
    NotApprovable,
    Operator,
    Origin,
    Resume,
    SessionKeyRequired,
    TooManyRequests,
    UnknownRequest,
    UnknownScope,
)
from democrai_osguard.approvals.request_table import HELD_SECONDS

REQUEST = read("/srv/data/customers.csv")


def test_one_row_counts_all_who_ask(service: ApprovalService) -> None:
    first = service.register(REQUEST)
    for _ in range(4):
        again = service.register(REQUEST)
    assert (again.id, again.count) == (first.id, 5)
    assert again.last_seen >= again.first_seen
    service.register(replace(REQUEST, session_key="sess-2"))
    assert len(service.list_requests()) == 2


def test_a_request_keeps_who_asked_and_through_whom(service: ApprovalService) -> None:
    origin = Origin(21, "org", "sess-1", "task-123")
    chain = (MODULE, Subject.parse("tool:reader"))
    asked = service.register(REQUEST, origin, chain=chain)
    again = service.get(asked.id)
    assert (again.origin, again.chain, again.label) == (origin, chain, "Filesystem read")
    assert "sess-1" not in repr(again)
    assert "sess-1" not in str(again.document())


def test_a_request_expires(service: ApprovalService) -> None:
    now = [1000.0]
    aging = ApprovalService(service.store, pending_ttl=60, clock=lambda: now[0])
    asked = aging.register(REQUEST)
    now[0] += 59
    aging.register(REQUEST)  # whoever asks again keeps it open
    now[0] += 59
    assert len(aging.list_requests()) == 1
    now[0] += 2
    assert aging.list_requests() == []
    outcome = aging.approve_permanently(asked.id, ADA)
    assert not outcome.applied
    assert aging.get(asked.id).state == "expired"
    assert aging.register(REQUEST).id != asked.id


def test_a_held_call_may_be_answered_once(service: ApprovalService) -> None:
    asked = service.register(REQUEST, held=True)
    assert service.approve_once(asked.id, ADA).applied
    assert service.wait_for_answer(asked.id, 1).state == "once"
    assert service.wait_for_answer(asked.id, 0).state == "used"
    assert service.list_decisions() == []
    assert service.check(REQUEST).code == "not_enabled"
    with pytest.raises(NotApprovable):
        service.approve_once(service.register(REQUEST).id, ADA)


def test_a_held_call_waits_no_longer_than_it_was_told(service: ApprovalService) -> None:
    asked = service.register(REQUEST, held=True)
    assert service.wait_for_answer(asked.id, 0.05).state == "pending"


def test_a_held_call_that_falls_silent_takes_its_question_with_it(
    service: ApprovalService,
) -> None:
    now = [1000.0]
    aging = ApprovalService(service.store, clock=lambda: now[0])
    asked = aging.register(REQUEST, held=True)
    for _ in range(9):  # as long as it waits it stands
        now[0] += 0.8 * HELD_SECONDS
        assert [each.id for each in aging.list_requests()] == [asked.id]
        assert aging.wait_for_answer(asked.id, 0).state == "pending"
    seen = aging.watch(timeout=30)
    assert next(seen).id == asked.id
    now[0] += HELD_SECONDS + 1
    assert aging.list_requests() == []
    assert (found := next(seen)).id == asked.id
    assert found.state == "expired"
    assert not aging.approve_once(asked.id, ADA).applied


@pytest.mark.parametrize("held_first", [True, False])
def test_a_held_call_does_not_take_the_question_of_another_with_it(
    service: ApprovalService, held_first: bool
) -> None:
    now = [1000.0]
    aging = ApprovalService(service.store, clock=lambda: now[0])
    for held in (held_first, not held_first):
        asked = aging.register(REQUEST, held=held)
    now[0] += 2 * HELD_SECONDS
    assert [each.id for each in aging.list_requests()] == [asked.id]


def test_watching_sees_what_is_open_and_what_changes(service: ApprovalService) -> None:
    asked = service.register(REQUEST)
    seen = service.watch(timeout=30)
    assert next(seen).id == asked.id
    service.deny(asked.id, ADA)
    assert next(seen).state == "denied"
    other = service.register(read("/srv/b"))
    assert next(seen).id == other.id


@pytest.mark.parametrize(
    "target", ["relative", "/a/../b", "/a/", "/a\0b", "/" + "x" * 100_000, "/\ud800"]
)
def test_a_target_that_is_not_normal_is_an_error(service: ApprovalService, target: str) -> None:
    with pytest.raises(TargetError):
        service.register(read(target))
    with pytest.raises(TargetError):
        service.record(read(target).identity(Scope.PERMANENT), ADA)
    assert service.list_requests(pending=False) == []


def test_bytes_that_are_no_text_survive(service: ApprovalService) -> None:
    odd = read("/srv/\udcff\u202e\x1b[31m")
    asked = service.register(odd)
    assert service.get(asked.id).rule.target == odd.target
    service.approve_permanently(asked.id, ADA)
    assert service.check(odd).code == "permanent_approval"


def test_an_unsafe_path_cannot_be_approved(service: ApprovalService) -> None:
    with pytest.raises(NotApprovable):
        service.register(replace(REQUEST, unsafe="a loop"))


def test_bad_words_are_errors_with_a_code(service: ApprovalService) -> None:
    asked = service.register(REQUEST)
    with pytest.raises(UnknownScope, match="external_access_scope_unknown"):
        service.decide(asked.id, "forever", ADA)
    with pytest.raises(UnknownRequest, match="external_access_request_unknown"):
        service.deny("none", ADA)
    with pytest.raises(SessionKeyRequired):
        service.record(replace(REQUEST, session_key=None).identity(Scope.SESSION), ADA)
    with pytest.raises(NotApprovable):
        service.register(REQUEST, Origin(session_key="another"))
    assert service.get(asked.id).state == "pending"


@pytest.mark.parametrize("name", ["", "a\0b", "\ud800", "x" * 300, "line\nbreak"])
def test_names_are_printable(service: ApprovalService, name: str) -> None:
    for act in (
        lambda: Operator(name, super_role=True),
        lambda: Resume(name),
        lambda: Origin(session_key=name),
        lambda: service.end_session(name),
    ):
        with pytest.raises(NotApprovable):
            act()


def test_a_subject_cannot_flood_the_list(service: ApprovalService) -> None:
    for number in range(3):
        service.register(read(f"/srv/{number}"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("democrai_osguard.approvals.request_table.OPEN_LIMIT", 3)
        with pytest.raises(TooManyRequests):
            service.register(read("/srv/one-more"))
        service.register(read("/srv/1"))  # what is open already still counts


def test_a_session_key_that_cannot_be_one_finds_nothing(service: ApprovalService) -> None:
    for key in ("\ud800", "a\0b", ""):
        assert service.check(replace(REQUEST, session_key=key)).code == "not_enabled"
