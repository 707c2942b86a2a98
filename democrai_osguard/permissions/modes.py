"""Permission modes: what becomes of an act that requires approval.

`supervised` asks a person. `auto` asks a classifier first, and a person whenever it does not give
a plain answer. `bypass` allows and records that it did; where nothing records, or the record fails,
it does not allow. No mode softens a denial. `ApprovalService.settled` records to the audit log.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from concurrent.futures import Future
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from democrai_osguard.access import AccessRequest, Identity, Scope
from democrai_osguard.errors import ContractError, shown
from democrai_osguard.permissions.asking import answer_of
from democrai_osguard.policy.decision import Allow, Decision, Deny, RequiresApproval

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    Question = Callable[[AccessRequest], Awaitable["Answer"] | "Answer"]
    Classifier = Callable[[AccessRequest], Awaitable[object] | object]
    Record = Callable[[str, AccessRequest], None]
    _Shared = Future[Allow | Deny]

_LONGEST = 1e9  # seconds
_log = logging.getLogger(__name__)


class Mode(StrEnum):
    """Who answers when nothing allows an act yet."""

    BYPASS = "bypass"
    SUPERVISED = "supervised"
    AUTO = "auto"


class Answer(StrEnum):
    """What a person says to a question."""

    ONCE = "once"
    SESSION = "session"
    PERMANENT = "permanent"
    DENY = "deny"


@dataclass
class Permissions:
    """Settles decisions for one application. Each thing is asked once, however many are waiting.

    Who is asked, a person or a classifier, may be a function of either kind: one that is not
    asynchronous runs in a thread of its own, so that it holds up nobody else.
    """

    mode: Mode
    ask: Question | None = None  # nobody to ask is a no
    classify: Classifier | None = None
    record: Record | None = None
    patience: float = 300.0  # seconds; a question that nobody answers is a no
    remember: bool = True  # False where whoever is asked remembers the answer
    _settled: dict[Identity, Allow | Deny] = field(default_factory=dict, init=False, repr=False)
    _open: dict[Identity, _Shared] = field(default_factory=dict, init=False, repr=False)
    _asking: set[asyncio.Task[Allow | Deny]] = field(default_factory=set, init=False, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    def __post_init__(self) -> None:
        """Raise ContractError for a mode that there is not, or a time that nobody can wait."""
        if self.mode not in list(Mode):
            raise ContractError(f"{shown(self.mode)} is not a mode ({', '.join(Mode)})")
        self.mode = Mode(self.mode)
        if not 0 < self.patience <= _LONGEST:
            raise ContractError(f"patience: {self.patience!r} is no time to wait")

    async def settle(self, decision: Decision) -> Allow | Deny:
        """Return Allow or Deny for any decision, asking where the mode says so.

        Callers may be in different event loops; the question runs in the first one's.
        """
        if not isinstance(decision, RequiresApproval):
            return decision
        request = decision.request
        if self.mode is Mode.BYPASS:
            if self.record is None:
                return Deny(request, "a bypass is allowed only where it is recorded")
            self.record("bypass", request)
            return Allow("bypass", request.rule, request.subject)
        identity = request.identity(Scope.SESSION)
        with self._lock:
            known = self.remembered(request)
            if known is not None:
                return known
            shared = self._open.get(identity) or self._begin(request, identity)
        # Shielded: one caller that goes away does not take the question from the others.
        return await asyncio.shield(asyncio.wrap_future(shared))

    def remembered(self, request: AccessRequest) -> Allow | Deny | None:
        """Return what was answered before, for this session or for good; nobody is asked."""
        for scope in (Scope.SESSION, Scope.PERMANENT):
            known = self._settled.get(request.identity(scope))
            if known is not None:
                return known
        return None

    async def settle_all(self, decisions: Sequence[Decision]) -> Allow | Deny | None:
        """Settle the decisions about one call: the strictest answer, None where there are none.

        A denial among them is the answer at once, and nobody is asked about the others.
        """
        for decision in decisions:
            if isinstance(decision, Deny):
                return decision
        settled: Allow | Deny | None = None
        for decision in decisions:
            settled = await self.settle(decision)
            if isinstance(settled, Deny):
                return settled
        return settled

    def end_session(self, session_key: str) -> None:
        """Forget what was answered for a session that is over; what is still asked is a no."""
        with self._lock:
            for known in (self._settled, self._open):
                for identity in [each for each in known if each.session_key == session_key]:
                    del known[identity]

    def _begin(self, request: AccessRequest, identity: Identity) -> _Shared:
        shared: _Shared = Future()
        self._open[identity] = shared
        question = asyncio.ensure_future(self._answer(request, identity, shared))
        self._asking.add(question)

        def ended(done: asyncio.Task[Allow | Deny]) -> None:
            with self._lock:
                self._asking.discard(done)
                if self._open.get(identity) is shared:
                    del self._open[identity]
            if done.cancelled():
                shared.set_result(Deny(request, "the question was closed, which is a no"))
            elif (error := done.exception()) is not None:  # what cannot be written down is not done
                shared.set_exception(error)
            else:
                shared.set_result(done.result())

        question.add_done_callback(ended)
        return shared

    async def _answer(
        self, request: AccessRequest, identity: Identity, shared: _Shared
    ) -> Allow | Deny:
        answer = await self._classified(request) if self.mode is Mode.AUTO else None
        if answer is None:
            answer = await self._asked(request)
        if answer is None:
            return Deny(request, "nobody answered in time, which is a no")
        if self._open.get(identity) is not shared:
            return Deny(request, "its session was over before there was an answer")
        if self.record is not None:
            self.record(f"answered_{answer}", request)
        decision = _decision(answer, request)
        self._keep(answer, request, decision)
        return decision

    def _keep(self, answer: Answer, request: AccessRequest, decision: Allow | Deny) -> None:
        """Remember an answer as far as it reaches: without a session there is none to reach."""
        if not self.remember or answer is Answer.ONCE:
            return
        if answer is Answer.PERMANENT:
            self._settled[request.identity(Scope.PERMANENT)] = decision
        elif request.session_key is not None:
            self._settled[request.identity(Scope.SESSION)] = decision

    async def _classified(self, request: AccessRequest) -> Answer | None:
        """Return the classifier's answer; None, and so a person, for anything but a plain one."""
        if self.classify is None:
            return None
        try:
            answer = await answer_of(self.classify, request, self.patience)
        except Exception:  # noqa: BLE001 - whatever goes wrong, a person decides
            _log.exception("the classifier failed about %s; a person is asked", request)
            return None
        return _PLAIN.get(answer) if isinstance(answer, str) else None

    async def _asked(self, request: AccessRequest) -> Answer | None:
        if self.ask is None:
            return None
        try:
            answer = await answer_of(self.ask, request, self.patience)
            return Answer(answer)  # type: ignore[arg-type] # whatever it is, it is one or raises
        except TimeoutError:
            return None
        except Exception:  # noqa: BLE001 - whatever goes wrong, it is no yes
            _log.exception("the question about %s was not answered", request)
            return None


def _decision(answer: Answer, request: AccessRequest) -> Allow | Deny:
    if answer is Answer.DENY:
        return Deny(request, "the question was answered with no", request.rule)
    return Allow(_CODES[answer], request.rule, request.subject)


_PLAIN = {"allow": Answer.SESSION, "deny": Answer.DENY}
_CODES = {
    Answer.ONCE: "approved_once",
    Answer.SESSION: "session_approval",
    Answer.PERMANENT: "permanent_approval",
}
