"""The approval service behind the guard: what it decided counts, what it refused is asked for.

What the guard refuses, and where the runtime goes around it, is written to the audit log.
"""

from __future__ import annotations

import atexit
from typing import TYPE_CHECKING

from democrai_osguard import guard
from democrai_osguard.approvals.records import Origin, session_label
from democrai_osguard.approvals.refusals import Refusal

if TYPE_CHECKING:
    from democrai_osguard.access import AccessRequest, Rule, Subject
    from democrai_osguard.approvals.journal import Journal
    from democrai_osguard.approvals.service import ApprovalService

_RESOURCES = {
    "sandbox_filesystem_denied": "filesystem",
    "sandbox_filesystem_execute_denied": "filesystem",
    "sandbox_filesystem_fd_denied": "filesystem",
    "sandbox_network_denied": "network",
}


class _Link:
    """Answers the guard from the service, remembering what one activation may remember."""

    def __init__(self, service: ApprovalService) -> None:
        self._service = service
        self._verdicts = service.verdicts()

    def denial(self, request: AccessRequest) -> Rule | None:
        return self._verdicts.denial(request)

    def session_approval(self, request: AccessRequest) -> Rule | None:
        return self._verdicts.session_approval(request)

    def permanent_approval(self, request: AccessRequest) -> Rule | None:
        return self._verdicts.permanent_approval(request)

    def refused(self, request: AccessRequest, chain: tuple[Subject, ...]) -> None:
        """Ask a person."""
        self._service.register(request, Origin(session_key=request.session_key), chain=chain)


class _Witness:
    """Writes what the guard does to the service's audit log."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def refused(self, refused: guard.Refused) -> None:
        chain = " > ".join(refused.chain)
        self._journal.refused(
            Refusal.of(
                code=refused.code,
                reason=refused.reason or f"no rule of {chain} covers it",
                subject=refused.subject,
                resource_type=_RESOURCES.get(refused.code),
                operation=refused.operation,
                target=refused.target,
                session=session_label(refused.session_key),
            )
        )

    def bypassed(self, bypassed: guard.Bypassed) -> None:
        fields = {
            "why": "the runtime's own code",
            "subject": bypassed.subject,
            "chain": list(bypassed.chain),
            "place": bypassed.place,
            "session": session_label(bypassed.session_key),
        }
        self._journal.bypassed(fields)


def use_approvals(service: ApprovalService | None) -> None:
    """Let the guard ask this service, and write to its log; None means the rules alone.

    Refused inside a guard.
    """
    if service is None:
        guard.use_approvals(None)
        return
    guard.use_approvals(_Link(service), _Witness(service.journal))
    atexit.register(service.journal.flush)  # what was counted and not written yet
