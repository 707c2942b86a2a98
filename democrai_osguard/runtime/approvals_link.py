"""The approval service behind the guard: what it decided counts, what it refused is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from democrai_osguard import guard
from democrai_osguard.approvals.records import Origin

if TYPE_CHECKING:
    from democrai_osguard.access import AccessRequest, Rule, Subject
    from democrai_osguard.approvals.service import ApprovalService


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
        """Write the refusal down, and ask a person."""
        path = " > ".join(map(str, chain))
        self._service.refused(request, "not_enabled", f"no rule of {path} covers it")
        self._service.register(request, Origin(session_key=request.session_key), chain=chain)


def use_approvals(service: ApprovalService | None) -> None:
    """Let the guard ask this service; None means the rules alone. Refused inside a guard."""
    guard.use_approvals(None if service is None else _Link(service))
