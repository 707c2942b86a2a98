"""The approval service: who may do what, asked, decided and taken back.

Only operators decide. A backend that cannot answer leaves access closed, as ApprovalCheckFailed.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from typing import TYPE_CHECKING, TypeVar

from democrai_osguard.access import AccessRequest, Identity, Rule, Scope, Subject
from democrai_osguard.approvals.errors import (
    ApprovalCheckFailed,
    NotApprovable,
    SessionKeyRequired,
    UnknownScope,
)
from democrai_osguard.approvals.journal import Journal, fields_of, refusal_of
from democrai_osguard.approvals.normal import check_normal
from democrai_osguard.approvals.records import (
    HistoryEntry,
    Origin,
    check_session_key,
)
from democrai_osguard.approvals.request_table import HELD_SECONDS, Asked
from democrai_osguard.approvals.store import Ruling
from democrai_osguard.approvals.vault import Vault, binding
from democrai_osguard.approvals.verdicts import ActivationVerdicts, StoreVerdicts
from democrai_osguard.approvals.widening import widened
from democrai_osguard.policy.chain import Chain
from democrai_osguard.policy.decide import Policy, decide
from democrai_osguard.policy.decision import Allow
from democrai_osguard.policy.profile import Profile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from democrai_osguard.approvals.records import (
        Operator,
        Outcome,
        PendingRequest,
        Resume,
        Standing,
    )
    from democrai_osguard.approvals.store import Store, Witness
    from democrai_osguard.audit.log import AuditLog
    from democrai_osguard.policy.decision import Decision


Result = TypeVar("Result")

_ALL = 1_000_000
_PATIENCE = 30.0  # seconds of one wait
_ROUND = 2.0  # seconds between two words of a held call that it still waits, and two looks for them
_log = logging.getLogger("democrai_osguard.approvals")


class ApprovalService:
    """Checks, registers and decides. It answers `decide` as the protocol `Verdicts`."""

    def __init__(
        self,
        store: Store,
        *,
        vault: Vault | None = None,
        audit: AuditLog | None = None,
        pending_ttl: float | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.store = store
        self.vault = vault or Vault()
        self.audit = audit
        self.pending_ttl = pending_ttl
        self._clock = clock
        self.journal = Journal(audit)
        self._news = 0
        self._latest = threading.local()
        self._forgetting: list[Callable[[str], None]] = []

    # What people decided, as `decide` asks for it. For many questions take `verdicts()`.

    def denial(self, request: AccessRequest) -> Rule | None:
        """Return the denial that stands in the way of the request."""
        verdicts = self._latest.verdicts = StoreVerdicts(self.store)
        return verdicts.denial(request)

    def session_approval(self, request: AccessRequest) -> Rule | None:
        """Return the approval of the request's own session."""
        return self._same_question(request).session_approval(request)

    def permanent_approval(self, request: AccessRequest) -> Rule | None:
        """Return the approval that holds in every session."""
        return self._same_question(request).permanent_approval(request)

    def verdicts(self) -> ActivationVerdicts:
        """Return answers that are remembered for one guard activation."""
        return ActivationVerdicts(self.store, lambda: self._news)

    def check(
        self,
        request: AccessRequest,
        chain: Chain | None = None,
        profile: Profile | None = None,
    ) -> Decision:
        """Decide a request against the rules of its chain and what people decided."""
        own = Chain.of(request.subject) if chain is None else chain
        policy = Policy(own, profile or Profile(), StoreVerdicts(self.store))
        try:
            decision = decide(request, policy)
        except RuntimeError:
            _log.exception("approvals could not be checked; access stays closed")
            raise
        if not isinstance(decision, Allow):
            self.refused(request, decision.code, decision.reason)
        return decision

    def register(
        self,
        request: AccessRequest,
        origin: Origin | None = None,
        *,
        chain: tuple[Subject, ...] = (),
        resume: Resume | None = None,
        held: bool = False,
    ) -> PendingRequest:
        """Ask a person. The same request of the same session is one row, counted."""
        origin = origin or Origin(session_key=request.session_key)
        _check_approvable(request, origin)
        now, subject = self._clock(), request.subject.identity
        asked = Asked(
            subject=subject,
            rule=request.rule,
            origin=origin,
            chain=chain or (request.subject,),
            at=now,
            expires_at=self._expires_at(now, held=held),
            held=held,
            resume_action=None if resume is None else resume.action,
            seal=self._seal(subject, request.rule, origin, resume),
        )
        return self.store.register(asked)

    def approve_for_session(
        self, request_id: str, operator: Operator, *, widen: bool = False, overrule: bool = False
    ) -> Outcome:
        """Approve a request for the session that asked."""
        return self.decide(request_id, "session", operator, widen=widen, overrule=overrule)

    def approve_permanently(
        self, request_id: str, operator: Operator, *, widen: bool = False, overrule: bool = False
    ) -> Outcome:
        """Approve a request for every session from now on."""
        return self.decide(request_id, "permanent", operator, widen=widen, overrule=overrule)

    def approve_once(self, request_id: str, operator: Operator) -> Outcome:
        """Let a held call through, this once. The audit log says so; no approval is stored."""
        operator.require()
        ruling = Ruling(request_id, None, operator.name, self._clock())
        return self._deciding(lambda witness: self.store.decide(ruling, witness))

    def deny(self, request_id: str, operator: Operator, *, overrule: bool = False) -> Outcome:
        """Deny a request, and with it every approval of the same thing."""
        return self.decide(request_id, "denied", operator, overrule=overrule)

    def decide(
        self,
        request_id: str,
        scope: str,
        operator: Operator,
        *,
        widen: bool = False,
        overrule: bool = False,
    ) -> Outcome:
        """Decide a request. A second decision changes nothing unless it is to overrule."""
        operator.require()
        word = scope_of(scope)
        rule = widened(self.store.get(request_id).rule).rule if widen else None
        ruling = Ruling(request_id, word, operator.name, self._clock(), rule, overrule)
        return self._deciding(lambda witness: self.store.decide(ruling, witness))

    def record(self, decision: Identity, operator: Operator) -> HistoryEntry:
        """Record a decision that no request asked for. The newest about one thing stands."""
        operator.require()
        subject = Subject(decision.subject_type, decision.subject_name).identity
        rule = Rule(decision.resource_type, decision.operation, decision.target)
        check_normal(rule)
        check_session_key(decision.session_key)
        scope = scope_of(decision.scope)
        session = decision.session_key if scope is Scope.SESSION else None
        if scope is Scope.SESSION and session is None:
            raise SessionKeyRequired("a session approval needs a session key")
        act = "deny" if scope is Scope.DENIED else "approve"
        entry = HistoryEntry(0, self._clock(), operator.name, act, subject, rule, scope, session)
        return self._deciding(lambda witness: self.store.record(entry, witness))

    def revoke(self, decision_id: int, operator: Operator) -> HistoryEntry:
        """End an approval or a denial; what it was about is undecided again."""
        operator.require()
        by, at = operator.name, self._clock()
        return self._deciding(lambda witness: self.store.revoke(decision_id, by, at, witness))

    def undo(self, decision_id: int, operator: Operator) -> Outcome:
        """Take a fresh decision back: what it replaced stands again, its requests are open."""
        operator.require()
        by, at = operator.name, self._clock()
        return self._deciding(lambda witness: self.store.undo(decision_id, by, at, witness))

    def end_session(self, session_key: str) -> int:
        """End a session: its approvals and its open requests are gone."""
        check_session_key(session_key)
        at = self._clock()
        ended = self._deciding(lambda witness: self.store.end_session(session_key, at, witness))
        for forget in self._forgetting:
            forget(session_key)
        return ended

    def when_a_session_ends(self, forget: Callable[[str], None]) -> None:
        """Tell somebody who remembers answers of a session, too, that it is over."""
        if forget not in self._forgetting:
            self._forgetting.append(forget)

    def get(self, request_id: str) -> PendingRequest:
        """Return a request; raise UnknownRequest where there is none."""
        return self.store.get(request_id)

    def list_requests(self, *, pending: bool = True) -> list[PendingRequest]:
        """Return the open requests, or all that are kept."""
        return self.store.requests(at=self._clock(), pending=pending)

    def list_decisions(self) -> list[Standing]:
        """Return the decisions that stand."""
        return self.store.standing()

    def list_history(self, limit: int = 100) -> list[HistoryEntry]:
        """Return what was decided, newest first."""
        return self.store.history(limit=limit)

    def changes(self, after: int, timeout: float) -> tuple[int, list[PendingRequest]]:
        """Wait for a change; return the new revision and the requests that changed."""
        revision = self.wait(after, timeout)
        if revision == after:
            return after, []
        changed = self.store.requests(at=self._clock(), pending=False, after=after, limit=_ALL)
        self.notice()
        return max([revision, *(request.revision for request in changed)]), changed

    def wait(self, known: int, timeout: float) -> int:
        """Return the store's revision once it is not the known one, or after the timeout.

        Meanwhile requests whose call no longer says that it waits are closed, which is news.
        """
        until = time.monotonic() + timeout
        while True:
            # A store that cannot be written can still be watched; lists leave such requests out.
            with contextlib.suppress(ApprovalCheckFailed):
                self.store.expire(self._clock())
            left = until - time.monotonic()
            revision = self.store.wait(known, max(0, min(left, _ROUND)))
            if revision != known or left <= _ROUND:
                return revision

    def watch(self, *, timeout: float | None = None) -> Iterator[PendingRequest]:
        """Yield the open requests, then each request that is new or has changed."""
        revision = self.store.revision()
        yield from self.list_requests()
        until = None if timeout is None else time.monotonic() + timeout
        while until is None or time.monotonic() < until:
            left = _PATIENCE if until is None else min(_PATIENCE, until - time.monotonic())
            revision, changed = self.changes(revision, max(left, 0))
            yield from changed

    def wait_for_answer(self, request_id: str, timeout: float) -> PendingRequest:
        """Hold a call until its request is decided; a single answer is used up by this."""
        until = time.monotonic() + timeout
        while True:
            revision, request = self.store.revision(), self.get(request_id)
            if request.state == "once" and not self.store.take_once(request_id):
                continue  # another held call was quicker
            left = until - time.monotonic()
            if request.state == "pending":
                self._say_that_it_waits(request)
            if request.state != "pending" or left <= 0:
                self.notice()
                return request
            self.store.wait(revision, min(left, _ROUND))

    def notice(self) -> None:
        """Let what this process has seen to be decided count here at once."""
        self._news += 1

    def withdraw(self, request_id: str) -> bool:
        """Close a request whose call no longer waits; tell whether it was still open."""
        return self.store.withdraw(request_id)

    def refused(self, request: AccessRequest, code: str, reason: str) -> None:
        """Write a refusal down, where there is an audit log."""
        self.journal.refused(refusal_of(request, code, reason))

    def bypassed(self, request: AccessRequest, why: str) -> None:
        """Write down that a mode let something through; raise where that is not possible."""
        self.journal.bypassed({"why": why, **fields_of(request)})

    def settled(self, event: str, request: AccessRequest) -> None:
        """Write down what a permission mode did, as `Permissions` reports it; raise likewise."""
        if event == "bypass":
            self.bypassed(request, "the permission mode is bypass")
        else:
            self.journal.answered(event.removeprefix("answered_"), request)

    def own_files(self) -> tuple[str, ...]:
        """Return where the store, the keys and the audit log are: nothing guarded touches them."""
        log = () if self.audit is None else (self.audit.folder,)
        return (*self.store.files(), self.vault.keys.place, *log)

    def close(self) -> None:
        """Let go of the store."""
        self.journal.flush()
        self.store.close()

    def _same_question(self, request: AccessRequest) -> StoreVerdicts:
        """Return the look-up that this thread just made for a denial, or a new one."""
        verdicts: StoreVerdicts | None = getattr(self._latest, "verdicts", None)
        if verdicts is None or not verdicts.is_about(request):
            verdicts = StoreVerdicts(self.store)
        return verdicts

    def _deciding(self, act: Callable[[Witness], Result]) -> Result:
        result = self.journal.deciding(act)
        self.notice()
        return result

    def _expires_at(self, now: float, *, held: bool) -> float | None:
        """Return until when a request stands; a held one as long as its call says so."""
        seconds = HELD_SECONDS if held else self.pending_ttl
        return None if seconds is None else now + seconds

    def _say_that_it_waits(self, request: PendingRequest) -> None:
        """Say it every few seconds: a process that is killed says nothing any more."""
        now = self._clock()
        if not request.held or request.expires_at is None:
            return
        if request.expires_at > now + HELD_SECONDS - _ROUND:
            return
        with contextlib.suppress(ApprovalCheckFailed):  # then the question lapses, which is a no
            self.store.still_waits(request.id, now)

    def _seal(
        self, subject: Subject, rule: Rule, origin: Origin, resume: Resume | None
    ) -> Callable[[str], bytes] | None:
        if resume is None:
            return None
        return lambda request_id: self.vault.seal(
            resume.context, binding(request_id, subject, rule, origin, resume.action)
        )


def scope_of(word: str) -> Scope:
    """Return a scope; raise UnknownScope for any other word."""
    try:
        return Scope(word)
    except ValueError as error:
        raise UnknownScope(f"{word!a} is not a scope ({', '.join(Scope)})") from error


def _check_approvable(request: AccessRequest, origin: Origin) -> None:
    if request.unsafe is not None:
        raise NotApprovable(f"{request.target!a} cannot be resolved safely; nothing approves it")
    if request.session_key != origin.session_key:
        raise NotApprovable("the request and its origin name different sessions")
    check_normal(request.rule)
