"""Refused connections become questions: what the helper refused, a person may allow.

The helper sends each refusal as an event. Here it becomes a pending `connect` request of the
subject and session that the sandbox was made for; the service keeps one row for each.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, TypeVar

from democrai_osguard.access import AccessRequest, Operation, ResourceType, Subject
from democrai_osguard.approvals.records import Origin
from democrai_osguard.errors import OsGuardError
from democrai_osguard.policy.decision import RequiresApproval
from democrai_osguard.targets import normalize_target
from democrai_osguard_helper.protocol import Denial

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from democrai_osguard.approvals.service import ApprovalService

K = TypeVar("K")
V = TypeVar("V")
PER_SECOND = 10.0  # questions of all subjects together
SUBJECT_PER_SECOND = 2.0  # of each, and as many as a second of all at once: others get theirs
COUNT_SECONDS = 10.0  # between two times that a question is counted as asked again
MAX_KNOWN = 4096  # questions and subjects that are remembered, the latest ones


class _Room:
    """Room for so many questions a second."""

    def __init__(self, per_second: float, most: float, now: float) -> None:
        self._rate, self._most = per_second, most
        self._left, self._since = most, now

    def take(self, now: float) -> bool:
        """Take room for one; tell whether there was any."""
        if not self.has_any(now):
            return False
        self._left -= 1
        return True

    def has_any(self, now: float) -> bool:
        """Tell whether there is room for one."""
        self._left = min(self._most, self._left + (now - self._since) * self._rate)
        self._since = now
        return self._left >= 1


class DenialDesk:
    """Turns events into pending requests, so many a second at most.

    What was asked a moment ago takes no room, and nobody takes the room of all: a program that
    tries every port, or the same few again and again, does not bury the others.
    """

    def __init__(
        self, service: ApprovalService, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._service = service
        self._clock = clock
        self._room = _Room(PER_SECOND, PER_SECOND, clock())
        self._rooms: dict[Subject, _Room] = {}
        self._asked: dict[AccessRequest, float] = {}  # when each question was last put
        self._generation = -1  # of the decisions, when that was remembered
        self.passed_over = 0

    def follow(self, events: Iterable[object]) -> None:
        """Register each refusal of this user's sandboxes among the events, until they end."""
        own = os.geteuid()
        for event in events:
            # Root hears of everybody's, and answers for its own.
            if isinstance(event, Denial) and event.uid == own:
                self.register(event)

    def register(self, event: Denial) -> bool:
        """Ask a person about one refusal, unless it is decided; tell whether it was taken in."""
        try:
            request = denied_request(event)
            taken = self._is_known(request) or self._ask(request)
        except (OsGuardError, RuntimeError):
            taken = False  # access stays closed; only the question is missing
        self.passed_over += not taken
        return taken

    def _is_known(self, request: AccessRequest) -> bool:
        """Tell whether this was asked a moment ago, and nothing was decided since."""
        generation = self._service.store.generation()
        if generation != self._generation:
            self._asked.clear()
            self._generation = generation
        asked = self._asked.get(request)
        return asked is not None and self._clock() < asked + COUNT_SECONDS

    def _ask(self, request: AccessRequest) -> bool:
        if not self._takes_room(request.subject):
            return False
        if isinstance(self._service.check(request), RequiresApproval):
            self._service.register(request, Origin(session_key=request.session_key))
        # Else denied for good, or approved while the attempt was made.
        _remember(self._asked, request, self._clock())
        return True

    def _takes_room(self, subject: Subject) -> bool:
        now = self._clock()
        room = self._rooms.get(subject) or _Room(SUBJECT_PER_SECOND, PER_SECOND / 2, now)
        _remember(self._rooms, subject, room)
        return self._room.has_any(now) and room.take(now) and self._room.take(now)


def _remember(known: dict[K, V], key: K, value: V) -> None:
    """Keep the latest, and forget the oldest when there are too many."""
    known.pop(key, None)
    known[key] = value
    if len(known) > MAX_KNOWN:
        del known[next(iter(known))]


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
