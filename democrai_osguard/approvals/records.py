"""The values of approvals: who asked, who decided, what stands. Frozen, and safe to print."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from democrai_osguard.access import Rule, Scope, Subject, Word
from democrai_osguard.approvals.errors import AdminRequired, NotApprovable

if TYPE_CHECKING:
    from collections.abc import Mapping

Id = int | str  # a user, an organisation or a task, as the application names it

_NAME_LIMIT = 255


class State(Word):
    """Where a request stands."""

    PENDING = "pending"
    APPROVED = "approved"
    DENIED = "denied"
    ONCE = "once"  # a held call may go through; nothing is stored
    USED = "used"  # and it has
    EXPIRED = "expired"
    ENDED = "ended"  # its session is over


class ResumeState(Word):
    """Where the resume action of a request stands."""

    NONE = "none"
    WAITING = "waiting"  # for a decision
    READY = "ready"  # approved, to be run
    STARTED = "started"  # claimed by one process; never run again
    DONE = "done"
    FAILED = "failed"
    WITHDRAWN = "withdrawn"  # denied, expired or undone


@dataclass(frozen=True, slots=True)
class Origin:
    """On whose behalf a request was made."""

    user_id: Id | None = None
    organization_id: Id | None = None
    session_key: str | None = field(default=None, repr=False)  # it may be a credential
    task_id: Id | None = None

    def __post_init__(self) -> None:
        for value in (self.user_id, self.organization_id, self.task_id):
            if not _is_id(value):
                raise NotApprovable("an id of an origin is a number or text")
        check_session_key(self.session_key)


@dataclass(frozen=True, slots=True)
class Operator:
    """Who decides: a user without an organisation scope, with a super role."""

    user_id: Id
    organization_id: Id | None = None
    super_role: bool = False

    def __post_init__(self) -> None:
        if not _is_id(self.user_id) or not _is_name(str(self.user_id)):
            raise NotApprovable("an operator has a printable name or a number")

    @property
    def name(self) -> str:
        """How the decision names its maker."""
        return str(self.user_id)

    def require(self) -> None:
        """Raise AdminRequired unless this is an operator."""
        if self.organization_id is not None or not self.super_role:
            raise AdminRequired("only a user with a super role and no organisation decides")


@dataclass(frozen=True, slots=True)
class Resume:
    """What to run after approval. The context never shows in a repr."""

    action: str
    context: Mapping[str, object] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if not _is_name(self.action):
            raise NotApprovable("a resume action has a printable name")


@dataclass(frozen=True, slots=True)
class PendingRequest:
    """A request that was registered, whatever became of it. It never holds a resume context."""

    id: str
    subject: Subject
    rule: Rule
    origin: Origin
    chain: tuple[Subject, ...]
    first_seen: float
    last_seen: float
    count: int
    state: State = State.PENDING
    scope: Scope | None = None
    decided_by: str | None = None
    decided_at: float | None = None
    decision_id: int | None = None
    resume_action: str | None = None
    resume_state: ResumeState = ResumeState.NONE
    held: bool = False
    revision: int = 0
    expires_at: float | None = None

    @property
    def label(self) -> str:
        """What is asked for, as people read it: `Network receive`."""
        return label(self.rule)

    @property
    def has_session(self) -> bool:
        """Whether it can be approved for a session."""
        return self.origin.session_key is not None

    @property
    def resumable(self) -> bool:
        """Whether something goes on by itself after approval."""
        return self.resume_state is not ResumeState.NONE

    def document(self) -> dict[str, object]:
        """Return the request as every interface may show it: no session key, no context."""
        return {
            "id": self.id,
            "label": self.label,
            "subject": {"type": str(self.subject.type), "name": self.subject.name},
            "resource": resource(self.rule),
            "chain": [str(subject) for subject in self.chain],
            "origin": {
                "user_id": self.origin.user_id,
                "organization_id": self.origin.organization_id,
                "task_id": self.origin.task_id,
                "has_session_key": self.has_session,
                "session": session_label(self.origin.session_key),
            },
            "resume": {"action": self.resume_action, "resumable": self.resumable,
                       "state": str(self.resume_state)},
            "held": self.held,
            "first_seen": self.first_seen,
            "last_seen": self.last_seen,
            "count": self.count,
            "state": str(self.state),
            "scope": None if self.scope is None else str(self.scope),
            "decided_by": self.decided_by,
            "decided_at": self.decided_at,
            "decision": self.decision_id,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Standing:
    """A decision that stands."""

    id: int
    subject: Subject
    rule: Rule
    scope: Scope
    session_key: str | None = field(repr=False)
    decided_by: str
    decided_at: float
    request_id: str | None = None

    def document(self) -> dict[str, object]:
        """Return the decision as every interface may show it."""
        return {
            "id": self.id,
            "label": label(self.rule),
            "subject": {"type": str(self.subject.type), "name": self.subject.name},
            "resource": resource(self.rule),
            "scope": str(self.scope),
            "session": session_label(self.session_key),
            "decided_by": self.decided_by,
            "decided_at": self.decided_at,
            "request": self.request_id,
        }


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One act of an operator, or of a session's end."""

    id: int
    at: float
    by: str
    act: str  # approve, deny, once, revoke, undo, end_session
    subject: Subject
    rule: Rule
    scope: Scope | None
    session_key: str | None = field(repr=False)
    request_id: str | None = None

    def document(self) -> dict[str, object]:
        """Return the entry as every interface may show it, and as the audit log keeps it."""
        return {
            "id": self.id,
            "at": self.at,
            "by": self.by,
            "act": self.act,
            "label": label(self.rule),
            "subject": {"type": str(self.subject.type), "name": self.subject.name},
            "resource": resource(self.rule),
            "scope": None if self.scope is None else str(self.scope),
            "session": session_label(self.session_key),
            "request": self.request_id,
        }


@dataclass(frozen=True, slots=True)
class Outcome:
    """The honest answer to an operator: what holds now, and whether their own word did it."""

    applied: bool
    request: PendingRequest | None
    decision: HistoryEntry | None = None
    agrees: bool = True  # whether what holds is what was asked for
    settled: tuple[str, ...] = ()  # other requests that the same decision answered

    @property
    def words(self) -> str:
        """What happened, in a sentence."""
        if self.applied or self.request is None:
            return "done" if self.applied else "nothing changed"
        state = self.request.state
        if state in {State.EXPIRED, State.ENDED}:
            return f"nothing changed: the request is no longer open ({state})"
        scope = "" if self.request.scope in {None, Scope.DENIED} else f" ({self.request.scope})"
        return f"nothing changed: {self.request.decided_by} already decided: {state}{scope}"


def label(rule: Rule) -> str:
    """Return a rule's kind as people read it: `Filesystem execute`."""
    return f"{rule.resource_type.replace('_', ' ').capitalize()} {rule.operation}"


def resource(rule: Rule) -> dict[str, str]:
    """Return a rule as the contract writes a resource."""
    return {
        "type": str(rule.resource_type),
        "operation": str(rule.operation),
        "target": rule.target,
    }


def session_label(session_key: str | None) -> str | None:
    """Return a name that tells sessions apart and is no use as a key."""
    if session_key is None:
        return None
    raw = session_key.encode("utf-8", "surrogatepass")
    return hashlib.sha256(b"session\0" + raw).hexdigest()[:8]


def check_session_key(session_key: object) -> None:
    """Raise NotApprovable unless this can be a session key."""
    if session_key is not None and not _is_name(session_key):
        raise NotApprovable(f"a session key is printable text of 1 to {_NAME_LIMIT} characters")


def _is_name(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= _NAME_LIMIT and value.isprintable()


def _is_id(value: object) -> bool:
    return value is None or (isinstance(value, (int, str)) and not isinstance(value, bool))
