"""Asking for access to something outside, and deciding about what was asked.

Who asks is the subject of the active guard, never the caller's word. Only an operator decides, and
never from inside a guard: code that runs on an operator's behalf could otherwise approve itself.

    answer = sdk.access.check_external_access(
        resource_type=sdk.access.EXTERNAL_RESOURCE_NETWORK,
        operation="receive",
        target="https://models.example.com/acme",
    )
    if answer.requires_approval: ...  # a person was asked
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from democrai_osguard.access import ResourceType, operation_of
from democrai_osguard.approvals import errors as approval_errors
from democrai_osguard.approvals.errors import AdminRequired
from democrai_osguard.approvals.records import Operator
from democrai_osguard.errors import ContractError, NetworkTargetMissing, OsGuardError, TargetError
from democrai_osguard.guard.installation import answer_by_default, doors
from democrai_osguard.guard.outcome import as_error
from democrai_osguard.refusals import ApprovalCheckFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from democrai_osguard.approvals.records import Outcome
    from democrai_osguard.approvals.service import ApprovalService

    Target = str | os.PathLike[str]
    P = ParamSpec("P")
    R = TypeVar("R")

EXTERNAL_RESOURCE_NETWORK = str(ResourceType.NETWORK)
EXTERNAL_RESOURCE_FILESYSTEM = str(ResourceType.FILESYSTEM)
EXTERNAL_RESOURCE_SYSTEM_DEPENDENCY = str(ResourceType.SYSTEM_DEPENDENCY)

_FAILED = "failed"  # as `runtime.desk` says it
_WAIT = "Nobody could answer, so it stays closed. Try again, or tell an operator."
_CORRECT = "Put right what the message names, and ask again."


class NoSubject(OsGuardError, RuntimeError):
    """Somebody asks outside of every guard: there is no subject to ask for."""

    code = "external_access_no_subject"

    def __init__(self) -> None:
        super().__init__(f"{self.code}: no guard is active here")


@dataclass(frozen=True, slots=True)
class ExternalAccess:
    """The answer about one act. `request_id` names the pending request where one was made."""

    allowed: bool
    requires_approval: bool
    code: str  # sandbox_allowed, session_approval, permanent_approval, denied or not_enabled
    message: str
    request_id: str | None = None


def check_external_access(  # noqa: PLR0913 - the contract's own parameters
    *,
    resource_type: str,
    operation: str,
    target: Target,
    register_request: bool = True,
    resume_action: str | None = None,
    resume_context: Mapping[str, object] | None = None,
) -> ExternalAccess:
    """Tell whether the active subject may do this; ask a person where nothing allows it yet.

    `resume_action` names what the application runs once, with the identity of this request, after
    an approval; `resume_context` is a JSON document that it gets back, and nobody else.

    Raises ContractError or TargetError where the question makes no sense, NoSubject outside of a
    guard, and ApprovalCheckFailed where nobody can answer: access then stays closed.
    """
    resource, verb = operation_of(resource_type, operation)
    context = _context(resume_action, resume_context)
    text = _text(target)
    answer = _door("external_access")(
        str(resource), str(verb), text, bool(register_request), resume_action, context
    )
    if answer is None:
        raise NoSubject
    if isinstance(answer, BaseException):
        raise _told(_as_failure(answer), str(verb), text) from None
    if answer[0] == _FAILED:
        raise _told(_error(*answer[1:]), str(verb), text)
    return ExternalAccess(*answer)


def require_external_access(
    *,
    resource_type: str,
    operation: str,
    target: Target,
    resume_action: str | None = None,
    resume_context: Mapping[str, object] | None = None,
) -> ExternalAccess:
    """Do what `check_external_access` does, and always ask a person where nothing allows it."""
    return check_external_access(
        resource_type=resource_type,
        operation=operation,
        target=target,
        register_request=True,
        resume_action=resume_action,
        resume_context=resume_context,
    )


async def check_external_access_async(  # noqa: PLR0913 - the contract's own parameters
    *,
    resource_type: str,
    operation: str,
    target: Target,
    register_request: bool = True,
    resume_action: str | None = None,
    resume_context: Mapping[str, object] | None = None,
) -> ExternalAccess:
    """Do what `check_external_access` does, without holding up the event loop."""
    return await _elsewhere(
        check_external_access,
        resource_type=resource_type,
        operation=operation,
        target=target,
        register_request=register_request,
        resume_action=resume_action,
        resume_context=resume_context,
    )


async def require_external_access_async(
    *,
    resource_type: str,
    operation: str,
    target: Target,
    resume_action: str | None = None,
    resume_context: Mapping[str, object] | None = None,
) -> ExternalAccess:
    """Do what `require_external_access` does, without holding up the event loop."""
    return await check_external_access_async(
        resource_type=resource_type,
        operation=operation,
        target=target,
        resume_action=resume_action,
        resume_context=resume_context,
    )


def approve_for_session(
    request_id: str | ExternalAccess,
    operator: Operator | None = None,
    *,
    widen: bool = False,
    overrule: bool = True,
) -> Outcome:
    """Approve a request for the session that asked; raise AdminRequired unless an operator does.

    The newest decision stands. With `overrule=False` one that was made meanwhile is left alone, and
    the outcome says so.
    """
    service, asked, who = _deciding(request_id, operator)
    return service.approve_for_session(asked, who, widen=widen, overrule=overrule)


def approve_permanently(
    request_id: str | ExternalAccess,
    operator: Operator | None = None,
    *,
    widen: bool = False,
    overrule: bool = True,
) -> Outcome:
    """Approve a request for every session; raise AdminRequired unless an operator does."""
    service, asked, who = _deciding(request_id, operator)
    return service.approve_permanently(asked, who, widen=widen, overrule=overrule)


def deny_external_access(
    request_id: str | ExternalAccess, operator: Operator | None = None, *, overrule: bool = True
) -> Outcome:
    """Deny a request; raise AdminRequired unless an operator does."""
    service, asked, who = _deciding(request_id, operator)
    return service.deny(asked, who, overrule=overrule)


async def approve_for_session_async(
    request_id: str | ExternalAccess,
    operator: Operator | None = None,
    *,
    widen: bool = False,
    overrule: bool = True,
) -> Outcome:
    """Do what `approve_for_session` does, without holding up the event loop."""
    return await _elsewhere(
        approve_for_session, request_id, operator, widen=widen, overrule=overrule
    )


async def approve_permanently_async(
    request_id: str | ExternalAccess,
    operator: Operator | None = None,
    *,
    widen: bool = False,
    overrule: bool = True,
) -> Outcome:
    """Do what `approve_permanently` does, without holding up the event loop."""
    return await _elsewhere(
        approve_permanently, request_id, operator, widen=widen, overrule=overrule
    )


async def deny_external_access_async(
    request_id: str | ExternalAccess, operator: Operator | None = None, *, overrule: bool = True
) -> Outcome:
    """Do what `deny_external_access` does, without holding up the event loop."""
    return await _elsewhere(deny_external_access, request_id, operator, overrule=overrule)


async def _elsewhere(act: Callable[P, R], *words: P.args, **more: P.kwargs) -> R:
    from asyncio import to_thread  # noqa: PLC0415 - the synchronous forms do without asyncio

    return await to_thread(act, *words, **more)


def _deciding(request: object, operator: object) -> tuple[ApprovalService, str, Operator]:
    """Return who keeps decisions, the id of a request or of what was answered, and who decides."""
    service = _service()
    if not isinstance(operator, Operator):
        raise AdminRequired("only an Operator decides")
    found = request.request_id if isinstance(request, ExternalAccess) else request
    if not isinstance(found, str):
        raise approval_errors.UnknownRequest(f"{found!r} is not the id of a request")
    return service, found, operator


def _service() -> ApprovalService:
    """Return the registered service; raise AdminRequired inside a guard, whoever it is for."""
    answer_by_default()
    desk = _door("approvals")()
    if isinstance(desk, BaseException):
        raise AdminRequired("code inside a guard decides nothing") from None
    if desk is None:
        raise ApprovalCheckFailed(f"{ApprovalCheckFailed.code}: no approval service is registered")
    service: ApprovalService = desk.service
    return service


def _door(name: str) -> Any:  # noqa: ANN401 - an opaque callable
    return doors[name] if doors else lambda *_question: None


def _text(target: object) -> str:
    found = os.fspath(target) if isinstance(target, os.PathLike) else target
    if not isinstance(found, str):
        raise TargetError(target, "a target is text or a path")
    return found


def _context(action: str | None, context: Mapping[str, object] | None) -> str | None:
    """Return the context as text: what the caller's own mapping does, it does in its guard."""
    if action is None and context is not None:
        raise ContractError("a resume context needs a resume action")
    if action is not None and not isinstance(action, str):
        raise ContractError("a resume action is a name")
    if context is None:
        return None
    try:
        return json.dumps(dict(context), allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        # Without a cause: its text may quote the context.
        raise approval_errors.ResumeFailed("a resume context is a JSON document") from None


def _as_failure(answer: BaseException) -> BaseException:
    """Return what the caller sees of a backend that failed: never its own exception."""
    if type(answer) is Warning:
        return as_error(answer)
    return ApprovalCheckFailed(f"{ApprovalCheckFailed.code}: {type(answer).__name__}")


def _told(error: BaseException, operation: str, target: str) -> BaseException:
    """Return an error about a question with the fields that a refusal has."""
    _kind, name, chain, *_ = _door("info")()
    hint = getattr(error, "hint", "") or (_WAIT if isinstance(error, RuntimeError) else _CORRECT)
    fields = {"subject": name, "operation": operation, "target": target, "chain": tuple(chain)}
    for field, value in (fields | {"hint": hint}).items():
        setattr(error, field, value)
    return error


def _error(code: str, words: tuple[str, ...]) -> Exception:
    known = _CODES.get(code, approval_errors.ApprovalCheckFailed)
    return known(*words)


_CODES: dict[str, type[Exception]] = {
    TargetError.code: TargetError,
    NetworkTargetMissing.code: NetworkTargetMissing,
    ContractError.code: ContractError,
    **{
        kind.code: kind
        for kind in (
            approval_errors.NotApprovable,
            approval_errors.TooManyRequests,
            approval_errors.ResumeFailed,
            approval_errors.StoreRefused,
        )
    },
}
