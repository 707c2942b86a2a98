"""Checking, registering and deciding, the same on both stores."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from approvals.cases import ADA, BOB, MODULE, read, receive

from democrai_osguard import Allow, Deny, RequiresApproval, Rule, Subject
from democrai_osguard.access import Identity, Scope
from democrai_osguard.approvals import (
    AdminRequired,
    ApprovalService,
    Operator,
    SessionKeyRequired,
    UnknownDecision,
)

if TYPE_CHECKING:
    from democrai_osguard.access import AccessRequest

REQUEST = read("/srv/data/customers.csv")


def code(service: ApprovalService, request: AccessRequest) -> str:
    return service.check(request).code


def test_an_undecided_request_requires_approval(service: ApprovalService) -> None:
    assert isinstance(service.check(REQUEST), RequiresApproval)


def test_a_session_approval_holds_in_its_session_only(service: ApprovalService) -> None:
    asked = service.register(REQUEST)
    assert service.approve_for_session(asked.id, ADA).applied
    assert code(service, REQUEST) == "session_approval"
    assert code(service, replace(REQUEST, session_key="sess-2")) == "not_enabled"
    assert code(service, replace(REQUEST, session_key=None)) == "not_enabled"


def test_a_permanent_approval_holds_everywhere(service: ApprovalService) -> None:
    service.approve_permanently(service.register(REQUEST).id, ADA)
    assert code(service, replace(REQUEST, session_key=None)) == "permanent_approval"
    decision = service.check(read("/srv/data/customers.csv/deep"))
    assert isinstance(decision, Allow)
    assert decision.rule == REQUEST.rule


def test_a_denial_is_a_denial(service: ApprovalService) -> None:
    service.deny(service.register(REQUEST).id, ADA)
    assert isinstance(service.check(REQUEST), Deny)


def test_no_operation_implies_another(service: ApprovalService) -> None:
    service.approve_permanently(service.register(REQUEST).id, ADA)
    for operation in ("create", "modify", "delete", "execute"):
        other = replace(REQUEST, operation=Rule.of("filesystem", operation, "/").operation)
        assert code(service, other) == "not_enabled"


def test_a_task_is_known_as_its_module(service: ApprovalService) -> None:
    task = replace(REQUEST, subject=Subject.parse("task:notes"))
    asked = service.register(task)
    assert asked.subject == MODULE
    service.approve_permanently(asked.id, ADA)
    assert code(service, REQUEST) == "permanent_approval"


def test_only_an_operator_decides(service: ApprovalService) -> None:
    asked = service.register(REQUEST)
    for who in (Operator("eve"), Operator("eve", organization_id=3, super_role=True)):
        with pytest.raises(AdminRequired, match="external_access_admin_required"):
            service.approve_permanently(asked.id, who)
        with pytest.raises(PermissionError):
            service.deny(asked.id, who)
    assert service.get(asked.id).state == "pending"
    assert service.list_history() == []


def test_a_session_approval_needs_a_session(service: ApprovalService) -> None:
    asked = service.register(replace(REQUEST, session_key=None))
    with pytest.raises(SessionKeyRequired, match="external_access_session_key_required"):
        service.approve_for_session(asked.id, ADA)
    assert service.get(asked.id).state == "pending"
    assert service.list_decisions() == []


def test_the_second_operator_gets_an_honest_answer(service: ApprovalService) -> None:
    asked = service.register(REQUEST)
    assert service.deny(asked.id, ADA).applied
    outcome = service.approve_permanently(asked.id, BOB)
    assert not outcome.applied
    assert not outcome.agrees
    assert outcome.words == "nothing changed: ada already decided: denied"
    assert isinstance(service.check(REQUEST), Deny)


def test_deciding_the_same_twice_is_deciding_once(service: ApprovalService) -> None:
    asked = service.register(REQUEST)
    service.approve_permanently(asked.id, ADA)
    outcome = service.approve_permanently(asked.id, ADA)
    assert (outcome.applied, outcome.agrees) == (False, True)
    assert len(service.list_history()) == 1


def test_an_operator_may_overrule(service: ApprovalService) -> None:
    asked = service.register(REQUEST)
    service.approve_permanently(asked.id, ADA)
    assert service.deny(asked.id, BOB, overrule=True).applied
    assert isinstance(service.check(REQUEST), Deny)
    assert service.approve_permanently(asked.id, ADA, overrule=True).applied
    assert code(service, REQUEST) == "permanent_approval"


def test_a_wider_approval_answers_the_requests_that_it_covers(service: ApprovalService) -> None:
    asked = service.register(REQUEST)
    sibling = service.register(read("/srv/data/orders.csv", "sess-2"))
    stranger = service.register(read("/srv/other"))
    outcome = service.approve_permanently(asked.id, ADA, widen=True)
    assert outcome.settled == (sibling.id,)
    assert service.get(sibling.id).state == "approved"
    assert [request.id for request in service.list_requests()] == [stranger.id]
    assert code(service, read("/srv/data/more.csv")) == "permanent_approval"


def test_a_session_approval_answers_no_other_session(service: ApprovalService) -> None:
    asked = service.register(REQUEST)
    other = service.register(replace(REQUEST, session_key="sess-2"))
    service.approve_for_session(asked.id, ADA)
    assert service.get(other.id).state == "pending"


def test_a_decision_can_be_revoked(service: ApprovalService) -> None:
    service.approve_permanently(service.register(REQUEST).id, ADA)
    (standing,) = service.list_decisions()
    service.revoke(standing.id, BOB)
    assert code(service, REQUEST) == "not_enabled"
    with pytest.raises(UnknownDecision):
        service.revoke(standing.id, BOB)
    assert [entry.act for entry in service.list_history()] == ["revoke", "approve"]


def test_undo_restores_what_the_decision_replaced(service: ApprovalService) -> None:
    service.approve_permanently(service.register(REQUEST).id, ADA)
    asked = service.register(REQUEST)
    outcome = service.deny(asked.id, BOB)
    assert isinstance(service.check(REQUEST), Deny)
    assert outcome.decision is not None
    service.undo(outcome.decision.id, BOB)
    assert code(service, REQUEST) == "permanent_approval"
    assert service.get(asked.id).state == "pending"


def test_a_decision_can_be_undone_once(service: ApprovalService) -> None:
    outcome = service.approve_permanently(service.register(REQUEST).id, ADA)
    assert outcome.decision is not None
    service.undo(outcome.decision.id, ADA)
    with pytest.raises(UnknownDecision):
        service.undo(outcome.decision.id, ADA)


def test_undoing_a_denial_keeps_what_was_approved_beside_it(service: ApprovalService) -> None:
    service.record(REQUEST.identity(Scope.SESSION), ADA)
    denied = service.record(REQUEST.identity(Scope.DENIED), ADA)
    service.record(REQUEST.identity(Scope.SESSION), ADA)
    service.undo(denied.id, ADA)
    assert code(service, REQUEST) == "session_approval"
    assert len(service.list_decisions()) == 1


def test_ending_a_session_ends_its_approvals_and_requests(service: ApprovalService) -> None:
    service.approve_for_session(service.register(REQUEST).id, ADA)
    service.approve_permanently(service.register(read("/srv/b")).id, ADA)
    waiting = service.register(read("/srv/c"))
    elsewhere = service.register(read("/srv/c", "sess-2"))
    assert service.end_session("sess-1") == 1
    assert code(service, REQUEST) == "not_enabled"
    assert code(service, read("/srv/b")) == "permanent_approval"
    assert service.get(waiting.id).state == "ended"
    assert service.get(elsewhere.id).state == "pending"
    assert not service.approve_permanently(waiting.id, ADA).applied


def test_a_decision_can_be_recorded_without_a_request(service: ApprovalService) -> None:
    asked = service.register(REQUEST)
    service.record(REQUEST.identity(Scope.PERMANENT), ADA)
    assert code(service, REQUEST) == "permanent_approval"
    assert service.get(asked.id).state == "approved"
    service.record(REQUEST.identity(Scope.DENIED), ADA)
    assert isinstance(service.check(REQUEST), Deny)


def test_urls_and_hosts_are_found_by_what_covers_them(service: ApprovalService) -> None:
    for target in ("https://api.example.com/v1", "*.example.org", "192.0.2.0/24"):
        what = receive(target)
        service.record(Identity(MODULE.type, MODULE.name, what.resource_type, what.operation,
                                target, Scope.PERMANENT), ADA)  # fmt: skip
    for covered in ("https://api.example.com/v1/x?q=1", "https://a.b.example.org", "192.0.2.7"):
        assert code(service, receive(covered)) == "permanent_approval"
    for outside in ("https://api.example.com/v10", "https://example.org", "192.0.3.7"):
        assert code(service, receive(outside)) == "not_enabled"
