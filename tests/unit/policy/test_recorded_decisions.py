from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from unit.policy.verdict_cases import GET, MODULE, READ, REQUEST, declared, ledger, silent

from democrai_osguard import Allow, Deny, Policy, RequiresApproval, Subject, decide
from democrai_osguard.access import AccessRequest, Operation, ResourceType, Scope
from democrai_osguard.policy.ledger import Ledger

if TYPE_CHECKING:
    from democrai_osguard.policy.decision import Decision

APPROVALS = (Scope.SESSION, Scope.PERMANENT)


def answer(request: AccessRequest, book: Ledger) -> Decision:
    return decide(request, Policy(silent(request), verdicts=book))


@pytest.mark.parametrize("scope", APPROVALS)
def test_denying_revokes_an_earlier_approval(scope: Scope) -> None:
    assert isinstance(answer(REQUEST, ledger(REQUEST, scope, Scope.DENIED)), Deny)


@pytest.mark.parametrize("scope", APPROVALS)
def test_approving_lifts_an_earlier_denial(scope: Scope) -> None:
    assert isinstance(answer(REQUEST, ledger(REQUEST, Scope.DENIED, scope)), Allow)


@pytest.mark.parametrize("scope", APPROVALS)
def test_a_revoked_approval_does_not_come_back_when_the_denial_is_lifted(scope: Scope) -> None:
    other = Scope.PERMANENT if scope is Scope.SESSION else Scope.SESSION
    book = ledger(REQUEST, scope, Scope.DENIED, other)
    decision = answer(REQUEST, book)
    assert isinstance(decision, Allow)
    assert decision.code == f"{other}_approval"


def test_the_newest_of_many_stands() -> None:
    turns = (Scope.PERMANENT, Scope.DENIED) * 3
    assert isinstance(answer(REQUEST, ledger(REQUEST, *turns)), Deny)
    assert isinstance(answer(REQUEST, ledger(REQUEST, *turns, Scope.PERMANENT)), Allow)


def test_a_session_approval_holds_in_its_session_only() -> None:
    book = ledger(REQUEST, Scope.SESSION)
    assert isinstance(answer(REQUEST, book), Allow)
    assert isinstance(answer(replace(REQUEST, session_key="session-2"), book), RequiresApproval)


def test_a_session_approval_of_one_session_opens_no_other_that_was_denied() -> None:
    book = ledger(REQUEST, Scope.DENIED, Scope.SESSION)
    elsewhere = replace(REQUEST, session_key="session-2")
    decision = decide(elsewhere, Policy(declared(elsewhere), verdicts=book))
    assert isinstance(decision, Deny)


def test_without_a_session_key_no_session_approval_counts() -> None:
    keyless = replace(REQUEST, session_key=None)
    assert isinstance(answer(keyless, ledger(REQUEST, Scope.SESSION)), RequiresApproval)
    assert isinstance(answer(keyless, ledger(keyless, Scope.SESSION)), RequiresApproval)
    assert isinstance(answer(REQUEST, ledger(keyless, Scope.SESSION)), RequiresApproval)


def test_a_session_approval_speaks_before_a_permanent_one() -> None:
    decision = answer(REQUEST, ledger(REQUEST, Scope.PERMANENT, Scope.SESSION))
    assert isinstance(decision, Allow)
    assert decision.code == "session_approval"


@pytest.mark.parametrize("session", [None, "session-2"])
def test_a_permanent_approval_and_a_denial_hold_in_every_session(session: str | None) -> None:
    elsewhere = replace(REQUEST, session_key=session)
    assert isinstance(answer(elsewhere, ledger(REQUEST, Scope.PERMANENT)), Allow)
    assert isinstance(answer(elsewhere, ledger(REQUEST, Scope.DENIED)), Deny)


@pytest.mark.parametrize("scope", [*APPROVALS, Scope.DENIED])
def test_a_task_is_known_as_its_module(scope: Scope) -> None:
    task = replace(REQUEST, subject=Subject.parse("task:reports"))
    allowed = Deny if scope is Scope.DENIED else Allow
    assert isinstance(answer(task, ledger(REQUEST, scope)), allowed)
    assert isinstance(answer(REQUEST, ledger(task, scope)), allowed)


@pytest.mark.parametrize("subject", ["module:other", "engine:reports", "tool:reports"])
@pytest.mark.parametrize("scope", [*APPROVALS, Scope.DENIED])
def test_a_decision_is_about_its_subject_only(subject: str, scope: Scope) -> None:
    other = replace(REQUEST, subject=Subject.parse(subject))
    assert isinstance(answer(other, ledger(REQUEST, scope)), RequiresApproval)


@pytest.mark.parametrize("operation", ["read", "create", "delete", "execute"])
@pytest.mark.parametrize("scope", [*APPROVALS, Scope.DENIED])
def test_no_operation_implies_another(operation: str, scope: Scope) -> None:
    other = replace(REQUEST, operation=Operation(operation))
    assert isinstance(answer(other, ledger(REQUEST, scope)), RequiresApproval)


@pytest.mark.parametrize("operation", ["connect", "send"])
def test_receiving_implies_neither_connecting_nor_sending(operation: str) -> None:
    other = replace(GET, operation=Operation(operation))
    assert isinstance(answer(other, ledger(GET, Scope.PERMANENT)), RequiresApproval)


@pytest.mark.parametrize("target", ["/srv/none/xy", "/srv/none/y", "/srv/none", "/srv/none/X"])
@pytest.mark.parametrize("scope", [*APPROVALS, Scope.DENIED])
def test_a_decision_about_a_path_is_not_about_its_siblings(target: str, scope: Scope) -> None:
    other = replace(REQUEST, target=target)
    assert isinstance(answer(other, ledger(REQUEST, scope)), RequiresApproval)


def test_a_decision_about_a_folder_holds_beneath_it() -> None:
    beneath = replace(REQUEST, target="/srv/none/x/y")
    assert isinstance(answer(beneath, ledger(REQUEST, Scope.PERMANENT)), Allow)
    assert isinstance(answer(beneath, ledger(REQUEST, Scope.DENIED)), Deny)


def test_approving_one_file_lifts_no_denial_of_its_folder() -> None:
    beneath = replace(REQUEST, target="/srv/none/x/y")
    book = ledger(REQUEST, Scope.DENIED).record(beneath.identity(Scope.PERMANENT))
    assert isinstance(answer(beneath, book), Deny)


@pytest.mark.parametrize(
    "target",
    ["https://example.com/v10", "https://example.com", "http://example.com/v1", "example.com:443"],
)
def test_an_approval_of_a_url_is_not_of_another(target: str) -> None:
    other = replace(GET, target=target)
    assert isinstance(answer(other, ledger(GET, Scope.PERMANENT)), RequiresApproval)


@pytest.mark.parametrize(
    "path", ["v1", "v1/x", "v1/", "/v1", "v1%2Fx", "%2Fv1", "v1%252Fx", "v1%5Cx"]
)
def test_a_denial_of_a_url_is_read_as_the_laxest_server_would(path: str) -> None:
    other = replace(GET, target=f"https://example.com/{path}")
    assert isinstance(
        decide(other, Policy(declared(other), verdicts=ledger(GET, Scope.DENIED))), Deny
    )


@pytest.mark.parametrize("path", ["/v1", "v1%2Fx", "%2Fv1", "v1%252Fx", "v1%5Cx"])
def test_an_approval_of_a_url_is_read_strictly(path: str) -> None:
    other = replace(GET, target=f"https://example.com/{path}")
    assert isinstance(answer(other, ledger(GET, Scope.PERMANENT)), RequiresApproval)


def test_a_denial_beats_a_manifest() -> None:
    policy = Policy(declared(READ), verdicts=ledger(READ, Scope.DENIED))
    assert isinstance(decide(READ, policy), Deny)


def test_a_decision_about_a_dependency_is_about_that_name() -> None:
    git = AccessRequest(MODULE, ResourceType.SYSTEM_DEPENDENCY, Operation.EXECUTE, "git")
    book = ledger(git, Scope.PERMANENT)
    assert isinstance(answer(git, book), Allow)
    assert isinstance(answer(replace(git, target="Git"), book), RequiresApproval)


def test_recording_returns_a_new_ledger() -> None:
    empty = Ledger()
    empty.record(REQUEST.identity(Scope.PERMANENT))
    assert isinstance(answer(REQUEST, empty), RequiresApproval)


@pytest.mark.parametrize("session", ["session-1", "session-2", None])
def test_a_session_approval_without_a_session_lifts_no_denial(session: str | None) -> None:
    keyless = replace(REQUEST, session_key=None)
    book = ledger(REQUEST, Scope.DENIED).record(keyless.identity(Scope.SESSION))
    asking = replace(REQUEST, session_key=session)
    assert isinstance(decide(asking, Policy(declared(asking), verdicts=book)), Deny)


def test_a_denial_recorded_for_a_task_holds_for_its_module() -> None:
    task = replace(READ, subject=Subject.parse(f"task:{MODULE.name}"))
    recorded = replace(READ.identity(Scope.DENIED), subject_type=task.subject.type)
    book = Ledger((recorded,))
    assert isinstance(decide(READ, Policy(declared(READ), verdicts=book)), Deny)
    assert isinstance(decide(task, Policy(declared(task), verdicts=book)), Deny)


def test_a_target_that_climbs_is_beneath_nothing() -> None:
    climbing = replace(READ, target=f"{READ.target}/../../etc/shadow")
    assert isinstance(decide(climbing, Policy(declared(READ))), RequiresApproval)
