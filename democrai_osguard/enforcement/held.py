"""Held acts become questions: a child waits in a system call until a person has answered.

The launcher sends what the child wants; here it becomes a pending request of its subject and
session, and what was decided goes back. What a person has denied is never asked again, what was
approved for the session or for good is not asked either. A timeout is a no.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from democrai_osguard.access import AccessRequest, ResourceType, operation_of
from democrai_osguard.approvals.records import Origin, State
from democrai_osguard.directories import own_places
from democrai_osguard.errors import OsGuardError
from democrai_osguard.policy.chain import Chain
from democrai_osguard.policy.decision import Allow, Deny
from democrai_osguard.targets import normalize_target

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from democrai_osguard.access import Subject
    from democrai_osguard.approvals.service import ApprovalService
    from democrai_osguard.enforcement.held_notices import Notices

YES, ONCE, NO = "yes", "once", "no"
PER_SECOND = 10  # questions; more wait for their turn
_UNANSWERED = (State.PENDING, State.EXPIRED, State.ENDED)


@dataclass(frozen=True, slots=True)
class Asked:
    """A question that is open: the request, and until when it waits."""

    request_id: str
    until: float


class HeldDesk:
    """Asks for one subject and session, so many questions a second at most."""

    def __init__(  # noqa: PLR0913 - who asks, for whom, and how
        self,
        service: ApprovalService,
        subject: Subject,
        origin: Origin,
        *,
        timeout: float,
        chain: tuple[Subject, ...] = (),
        notices: Notices | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._service = service
        self._subject = subject
        self._origin = origin
        self._timeout = timeout
        self._chain = chain
        self._notices = notices
        self._clock = clock
        self._queue: dict[int, Mapping[str, object]] = {}
        self._asked: dict[int, Asked] = {}
        self._late: set[int] = set()  # looked at once, and waiting for room
        self._recent: list[float] = []
        self._own = own_places()

    def take(self, message: Mapping[str, object]) -> None:
        """Take a question, or the news that nobody waits for one any more."""
        if "gone" in message:
            self._withdraw(int(str(message["gone"])))
        else:
            self._queue[int(str(message["id"]))] = message

    def answers(self) -> list[tuple[int, str]]:
        """Ask what may be asked now; return what was answered."""
        answers = [(number, word) for number in tuple(self._queue) for word in self._ask(number)]
        for number, asked in tuple(self._asked.items()):
            word = self._answer(asked)
            if word is not None:
                del self._asked[number]
                answers.append((number, word))
        return answers

    def open_requests(self) -> list[str]:
        """Return the ids of the requests that wait for a person."""
        return [asked.request_id for asked in self._asked.values()]

    def close(self) -> None:
        """Take every question back: whoever asked is gone."""
        for number in (*self._queue, *self._asked):
            self._withdraw(number)

    def _ask(self, number: int) -> list[str]:
        """Answer at once what is decided; else register it when there is room."""
        if number in self._late and not self._has_room():
            return []
        try:
            request = self._request(self._queue[number])
            decision = self._service.check(request, Chain.of(self._subject))
            if isinstance(decision, (Allow, Deny)):
                self._take_off(number)
                return [YES if isinstance(decision, Allow) else NO]
            if not self._has_room():
                self._late.add(number)
                return []
            self._recent.append(self._clock())
            self._register(number, request, self._queue[number])
            self._take_off(number)
        except (OsGuardError, RuntimeError, ValueError, KeyError):
            self._take_off(number)
            return [NO]  # what cannot be asked stays closed
        return []

    def _request(self, message: Mapping[str, object]) -> AccessRequest:
        what = operation_of(str(message["resource_type"]), str(message["operation"]))
        if str(message["target"]).startswith(self._own):
            raise ValueError("it belongs to the guard itself")
        # The path is where the object really is: the broker looked it up as the kernel does.
        target = str(message["target"])
        if what[0] is ResourceType.NETWORK:
            target = normalize_target(what[0], target, operation=what[1])
        return AccessRequest(self._subject, *what, target, self._origin.session_key)

    def _register(self, number: int, request: AccessRequest, message: Mapping[str, object]) -> None:
        process = f"process {message.get('pid')}: {message.get('command')}"
        origin = Origin(
            self._origin.user_id, self._origin.organization_id, self._origin.session_key, process
        )
        pending = self._service.register(request, origin, chain=self._chain, held=True)
        if self._notices and pending.id not in self.open_requests():
            self._notices.waits(pending)
        self._asked[number] = Asked(pending.id, self._clock() + self._timeout)

    def _answer(self, asked: Asked) -> str | None:
        request = self._service.wait_for_answer(asked.request_id, 0)
        if request.state is State.ONCE:  # taken by this very look
            return ONCE
        if request.state not in _UNANSWERED:
            return YES if request.state is State.APPROVED else NO
        if request.state is State.PENDING:
            if self._clock() < asked.until:
                return None
            self._service.withdraw(asked.request_id)
        if self._notices and self.open_requests().count(request.id) == 1:
            self._notices.unanswered(request)
        return NO

    def _take_off(self, number: int) -> None:
        self._queue.pop(number, None)
        self._late.discard(number)

    def _withdraw(self, number: int) -> None:
        self._take_off(number)
        asked = self._asked.pop(number, None)
        if asked is not None and self._service.get(asked.request_id).count == 1:
            self._service.withdraw(asked.request_id)

    def _has_room(self) -> bool:
        now = self._clock()
        self._recent = [at for at in self._recent if now - at < 1]
        return len(self._recent) < PER_SECOND
