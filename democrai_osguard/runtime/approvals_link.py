"""The approval service behind the guard: what it decided counts, what it refused is asked for.

What the guard refuses, and where the runtime goes around it, is written to the audit log.
"""

from __future__ import annotations

import atexit
import os
from asyncio import CancelledError
from typing import TYPE_CHECKING, Any

from democrai_osguard.access import Subject
from democrai_osguard.approvals.opening import open_service
from democrai_osguard.approvals.records import Origin, session_label
from democrai_osguard.approvals.refusals import Refusal
from democrai_osguard.errors import OsGuardError, ProfileError, shown
from democrai_osguard.guard.installation import doors, protect, use_asker
from democrai_osguard.permissions.asking import in_own_thread
from democrai_osguard.permissions.modes import Answer
from democrai_osguard.permissions.settling import APPLICANT, Settler
from democrai_osguard.policy.profile import Profile
from democrai_osguard.refusals import ApprovalCheckFailed
from democrai_osguard.runtime.desk import Actor, Desk

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from democrai_osguard import guard
    from democrai_osguard.access import AccessRequest
    from democrai_osguard.approvals.journal import Journal
    from democrai_osguard.approvals.service import ApprovalService
    from democrai_osguard.approvals.store import Store
    from democrai_osguard.permissions.modes import Permissions

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

    Where the helper listens and `sandbox.os.enabled` says so, a process beside this one brings
    what is decided to running sandboxes, and asks about what they are refused.
    """
    if service is None:
        use_asker(None)
        _follow(None)
        return
    settler = None if permissions is None else Settler(_record_in(service, permissions))
    if permissions is not None:
        service.when_a_session_ends(permissions.end_session)
    desk = Desk(service, _checked(profiles or {}), settler)
    use_asker(desk, _Witness(service.journal))
    _keep_from_guarded_code(service)
    atexit.register(service.journal.flush)  # what was counted and not written yet
    _follow(service.store)


def _keep_from_guarded_code(service: ApprovalService) -> None:
    """Protect what the service keeps outside of the state folder, where nothing else does."""
    for file in service.own_files():
        if not doors["is_protected"](os.path.realpath(file), "read"):
            protect(file)


def use_default_approvals() -> None:
    """Let the guard ask the store that the operator named, or the one in the state folder.

    Raise ApprovalCheckFailed where it cannot be opened: what an operator denied must count.
    """
    try:
        use_approvals(open_service(os.environ.get("DEMOCRAI_APPROVALS_STORE") or None))
    except (OSError, OsGuardError) as error:
        raise ApprovalCheckFailed(f"{ApprovalCheckFailed.code}: {error}") from error


def _checked(profiles: Mapping[Subject, Profile] | Mapping[object, object]) -> Any:  # noqa: ANN401 - the same, checked
    """Raise ProfileError for what would only be noticed when something is done."""
    for subject, profile in profiles.items():
        if not isinstance(subject, Subject) or not isinstance(profile, Profile):
            pair = f"{shown(subject)}: {shown(profile)}"
            raise ProfileError(f"profiles are a Profile for each Subject, not {pair}")
    return profiles


def _follow(store: Store | None) -> None:
    from democrai_osguard.enforcement.companion import follow_only  # noqa: PLC0415 - the guard does without
    from democrai_osguard.settings import load_settings  # noqa: PLC0415 - likewise
    from democrai_osguard_helper.protocol import DEFAULT_SOCKET  # noqa: PLC0415 - likewise

    settings = load_settings()
    helper = settings.helper_socket or DEFAULT_SOCKET
    follows = store is not None and settings.enabled and os.path.exists(helper)
    follow_only(getattr(store, "url", None) if follows else None, helper)


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
        who = APPLICANT.get()
        origin = who.origin if isinstance(who, Actor) else Origin(session_key=request.session_key)
        chain = who.subjects if isinstance(who, Actor) else ()
        asked = self._service.register(request, origin, chain=chain, held=True)
        try:
            found = await in_own_thread(self._service.wait_for_answer, asked.id, self._patience)
        except CancelledError:
            self._leave(asked.id)
            raise
        if found.state == "denied":
            return Answer.DENY
        if found.state in {"approved", "once", "used"}:
            return Answer.ONCE if found.scope is None else Answer(str(found.scope))
        self._leave(asked.id)
        raise TimeoutError

    def _leave(self, request_id: str) -> None:
        """Close the question that nobody waits for any more, unless somebody else has asked it."""
        if self._service.get(request_id).count == 1:
            self._service.withdraw(request_id)


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
    """Let the same permissions write what they let through to the audit log as well, once."""
    tell = permissions.record
    if isinstance(tell, _Record):
        tell = tell.tell
    permissions.record = _Record(service, tell)
    return permissions


class _Record:
    """Writes what a mode did to a service's audit log, and tells the application."""

    def __init__(
        self, service: ApprovalService, tell: Callable[[str, AccessRequest], None] | None
    ) -> None:
        self._service = service
        self.tell = tell

    def __call__(self, event: str, request: AccessRequest) -> None:
        self._service.settled(event, request)
        if self.tell is not None:
            self.tell(event, request)
