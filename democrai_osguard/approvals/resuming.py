"""Runs what waits behind an approval: once, with the requester's identity.

An action is claimed in the store before it runs. A process that dies before claiming leaves it to
the next one; a process that dies after it leaves it unfinished, and never to be run again.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from democrai_osguard.approvals.records import ResumeState
from democrai_osguard.approvals.vault import binding_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from democrai_osguard.access import Subject
    from democrai_osguard.approvals.records import Origin, PendingRequest
    from democrai_osguard.approvals.service import ApprovalService

    Action = Callable[["ResumeCall"], object]

_log = logging.getLogger("democrai_osguard.approvals")


@dataclass(frozen=True, slots=True)
class ResumeCall:
    """What an action is given. `origin` is the requester, never the approver."""

    action: str
    subject: Subject
    origin: Origin
    request: PendingRequest
    context: Mapping[str, object] = field(repr=False)


def run_resumes(service: ApprovalService, actions: Mapping[str, Action]) -> list[PendingRequest]:
    """Run every action that is ready and known here; return their requests as they ended.

    Call it at start-up, and after each approval. An action that raises is noted as failed.
    """
    ran = []
    for request in service.store.ready_resumes():
        action = actions.get(request.resume_action or "")
        if action is not None and _run(service, request, action):
            ran.append(service.get(request.id))
    return ran


def _run(service: ApprovalService, request: PendingRequest, action: Action) -> bool:
    sealed = service.store.claim_resume(request.id)
    if sealed is None:
        return False
    service.notice()  # the action is about to use what another process has just approved
    state = ResumeState.FAILED
    try:
        context = service.vault.open(sealed, binding_of(request))
        call = ResumeCall(
            str(request.resume_action), request.subject, request.origin, request, context
        )
        action(call)
        state = ResumeState.DONE
    except Exception as error:  # noqa: BLE001 - whatever an action raises, the others still run
        # Neither text nor traceback: they may quote the context.
        _log.error("resume of request %s failed: %s", request.id, type(error).__name__)
    finally:
        service.store.finish_resume(request.id, state)
        _note(service, request, state)
    return True


def _note(service: ApprovalService, request: PendingRequest, state: ResumeState) -> None:
    if service.audit is not None:
        fields = {
            "request": request.id,
            "action": request.resume_action,
            "state": str(state),
            "user_id": request.origin.user_id,
        }
        service.audit.record("resume", fields)


def rotate_keys(service: ApprovalService, *, drop_old: bool = False) -> int:
    """Seal every stored context with a fresh key; return how many. Old keys stay readable."""
    vault = service.vault
    vault.keys.rotate()

    def again(request: PendingRequest, sealed: bytes) -> bytes:
        bound_to = binding_of(request)
        return vault.seal(vault.open(sealed, bound_to), bound_to)

    count = service.store.reseal(again)
    if drop_old:
        vault.keys.drop_old()
    return count
