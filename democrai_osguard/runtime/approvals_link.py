"""The approval service behind the guard: what it decided counts, what it refused is asked for.

What the guard refuses, and where the runtime goes around it, is written to the audit log.
"""

from __future__ import annotations

import asyncio
import atexit
from typing import TYPE_CHECKING

from democrai_osguard.approvals.records import Origin, session_label
from democrai_osguard.approvals.refusals import Refusal
from democrai_osguard.guard.installation import use_asker
from democrai_osguard.permissions.modes import Answer
from democrai_osguard.permissions.settling import Settler
from democrai_osguard.runtime.desk import Desk

if TYPE_CHECKING:
    from collections.abc import Mapping

    from democrai_osguard import guard
    from democrai_osguard.access import AccessRequest, Subject
    from democrai_osguard.approvals.journal import Journal
    from democrai_osguard.approvals.service import ApprovalService
    from democrai_osguard.permissions.modes import Permissions
    from democrai_osguard.policy.profile import Profile

_RESOURCES = {
    "sandbox_filesystem_denied": "filesystem",
    "sandbox_filesystem_execute_denied": "filesystem",
    "sandbox_filesystem_fd_denied": "filesystem",
    "sandbox_network_denied": "network",
}


def use_approvals(
    service: ApprovalService | None,
    *,
    profiles: Mapping[Subject, Profile] | None = None,
    permissions: Permissions | None = None,
) -> None:
    """Let the guard ask this service; None means the rules alone. Refused inside a guard.

    `profiles` hold for every chain that their subject is in. With `permissions`, an act that
    nothing allows yet is settled as its mode says, while the act waits; a mode that lets something
    through is written to the audit log. Without, it is refused, and asked for where that helps.
    """
    if service is None:
        use_asker(None)
        return
    settler = None if permissions is None else Settler(_record_in(service, permissions))
    use_asker(Desk(service, profiles, settler), _Witness(service.journal))
    atexit.register(service.journal.flush)  # what was counted and not written yet


def ask_through(service: ApprovalService, patience: float = 300.0) -> _Person:
    """Return a question for `Permissions` that waits for the page or the command line.

    Use it with `remember=False`: the service remembers what was decided, and for how long.
    """
    return _Person(service, patience)


class _Person:
    """Asks whoever answers pending requests."""

    def __init__(self, service: ApprovalService, patience: float) -> None:
        self._service = service
        self._patience = patience

    async def __call__(self, request: AccessRequest) -> Answer:
        origin = Origin(session_key=request.session_key)
        asked = self._service.register(request, origin, held=True)
        found = await asyncio.to_thread(self._service.wait_for_answer, asked.id, self._patience)
        if found.state == "denied":
            return Answer.DENY
        if found.state in {"approved", "once", "used"}:
            return Answer.ONCE if found.scope is None else Answer(str(found.scope))
        raise TimeoutError


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


def _record_in(service: ApprovalService, permissions: Permissions) -> Permissions:
    """Let the same permissions write what they let through to the audit log as well."""
    tell = permissions.record

    def record(event: str, request: AccessRequest) -> None:
        service.settled(event, request)
        if tell is not None:
            tell(event, request)

    permissions.record = record
    return permissions
