"""Explicit questions where nobody keeps requests: what the rules alone say.

No service is no failing service. What is declared is allowed, what cannot be resolved is denied,
and of the rest the caller is told that there is nobody here to ask.
"""

from __future__ import annotations

from typing import Any

from democrai_osguard.access import AccessRequest, Rule, Subject
from democrai_osguard.errors import OsGuardError, TargetError
from democrai_osguard.guard.sealed.answers import FAILURE, is_protected, refusal
from democrai_osguard.guard.sealed.core import State, unguarded
from democrai_osguard.guard.sealed.integrity import intact
from democrai_osguard.policy.chain import Chain
from democrai_osguard.policy.decide import Policy, decide
from democrai_osguard.policy.decision import Allow, Decision, Deny, RequiresApproval
from democrai_osguard.targets.request import access_request

_FAILED = "failed"  # as `runtime.desk` says it
_CHANGED = "the code that decides was changed"
_OWN = "it belongs to the guard itself"
_NOBODY = (
    "Nobody keeps requests here, so none was made: the application names a service with"
    " runtime.use_approvals, or the operator a store with DEMOCRAI_STATE_DIR."
)


def from_rules(state: State, question: tuple[Any, ...]) -> object:
    """Answer a question as `runtime.desk` does, without anybody who decides or is asked."""
    resource, operation, text, *_ = question
    if not intact():
        return refusal(state, FAILURE, operation, text, _CHANGED)
    answer: object = unguarded(state, _answer, state, resource, operation, text)
    return answer if intact() else refusal(state, FAILURE, operation, text, _CHANGED)


def _answer(state: State, resource: str, operation: str, text: str) -> tuple[Any, ...]:
    subject, session = Subject(state.kind, state.subject), state.identity[2]
    try:
        request = access_request(subject, resource, operation, text, session_key=session)
    except TargetError as error:
        return _FAILED, error.code, (str(error.value), error.reason)
    except OsGuardError as error:
        return _FAILED, error.code, (str(error),)
    decision = _decision(state, request)
    waits = isinstance(decision, RequiresApproval)
    return isinstance(decision, Allow), waits, decision.code, _words(decision), None


def _decision(state: State, request: AccessRequest) -> Decision:
    if request.resource_type == "filesystem" and is_protected(request.target, request.operation):
        return Deny(request, _OWN)
    rules = [Rule(*rule) for rule in state.flat]
    return decide(request, Policy(Chain.of(request.subject, rules)))


def _words(decision: Decision) -> str:
    if isinstance(decision, Allow):
        return decision.reason
    words = f"{decision.reason}. {decision.hint}"
    return f"{words} {_NOBODY}" if isinstance(decision, RequiresApproval) else words
