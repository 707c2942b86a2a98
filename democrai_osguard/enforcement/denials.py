"""Refused connections become questions: what the helper refused, a person may allow.

The helper sends each refusal as an event. Here it becomes a pending `connect` request of the
subject and session that the sandbox was made for; the service keeps one row for each.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from democrai_osguard.access import AccessRequest, Operation, ResourceType, Subject
from democrai_osguard.approvals.records import Origin
from democrai_osguard.errors import OsGuardError
from democrai_osguard.policy.decision import RequiresApproval
from democrai_osguard.targets import normalize_target
from democrai_osguard_helper.protocol import Denial

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from democrai_osguard.approvals.service import ApprovalService

PER_SECOND = 10.0  # questions; a program that tries every port does not bury the others


class DenialDesk:
    """Turns events into pending requests, so many a second at most."""

    def __init__(
        self, service: ApprovalService, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._service = service
        self._clock = clock
        self._room, self._since = PER_SECOND, clock()
        self.passed_over = 0

    def follow(self, events: Iterable[object]) -> None:
        """Register each refusal among the events, until they end."""
        for event in events:
            if isinstance(event, Denial):
                self.register(event)

    def register(self, event: Denial) -> bool:
        """Ask a person about one refusal, unless it is decided; tell whether there was room to."""
        if not self._has_room():
            self.passed_over += 1
            return False
        try:
            request = denied_request(event)
            if not isinstance(self._service.check(request), RequiresApproval):
                return True  # denied for good, or approved while the attempt was made
            self._service.register(request, Origin(session_key=request.session_key))
        except (OsGuardError, RuntimeError):
            self.passed_over += 1  # access stays closed; only the question is missing
            return False
        return True

    def _has_room(self) -> bool:
        now = self._clock()
        self._room = min(PER_SECOND, self._room + (now - self._since) * PER_SECOND)
        self._since = now
        if self._room < 1:
            return False
        self._room -= 1
        return True


def denied_request(event: Denial) -> AccessRequest:
    """Return what was wanted, by the name it was looked up by where that is known."""
    host = event.name or (f"[{event.address}]" if ":" in event.address else event.address)
    text = f"{host}:{event.port}" if event.port else host
    return AccessRequest(
        Subject.parse(f"{event.subject.type}:{event.subject.name}"),
        ResourceType.NETWORK,
        Operation.CONNECT,
        normalize_target(ResourceType.NETWORK, text),
        session_key=event.session,
    )
