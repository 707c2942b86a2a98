"""From rows to values and back. A row that makes no sense is a broken store, not a refusal."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from democrai_osguard.access import Operation, ResourceType, Rule, Scope, Subject, SubjectType
from democrai_osguard.approvals.covering import digest, encoded
from democrai_osguard.approvals.errors import ApprovalCheckFailed
from democrai_osguard.approvals.records import (
    HistoryEntry,
    Id,
    Origin,
    PendingRequest,
    ResumeState,
    Standing,
    State,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import TypeVar

    from democrai_osguard.approvals.database import Row

    Value = TypeVar("Value")

REQUEST_COLUMNS = (
    "id, subject_type, subject_name, resource_type, operation, target, session_key, user_id,"
    " organization_id, task_id, chain, held, first_seen, last_seen, asked, state, scope,"
    " decided_by, decided_at, decision_id, resume_action, resume_state, revision, expires_at"
)
STANDING_COLUMNS = (
    "id, subject_type, subject_name, resource_type, operation, target, scope, session_key,"
    " decided_by, decided_at, request_id"
)
HISTORY_COLUMNS = (
    "id, subject_type, subject_name, resource_type, operation, target, scope, session_key,"
    " by_whom, at, request_id, act"
)
# How statements name what a decision is about; `about` gives the values.
ABOUT = "subject_type = ? AND subject_name = ? AND resource_type = ? AND operation = ?"


def about(subject: Subject, rule: Rule) -> tuple[str, str, str, str]:
    """Return the values for ABOUT."""
    return (
        str(subject.type),
        subject.name,
        str(rule.resource_type),
        str(rule.operation),
    )


def target_digest(rule: Rule) -> bytes:
    """Return what a target is found by where it may be too long for an index."""
    return digest(encoded(rule.target))


def request_of(row: Row) -> PendingRequest:
    """Return the request in a row of REQUEST_COLUMNS."""
    return _sound(_request, row)


def standing_of(row: Row) -> Standing:
    """Return the decision in a row of STANDING_COLUMNS."""
    return _sound(_standing, row)


def entry_of(row: Row) -> HistoryEntry:
    """Return the entry in a row of HISTORY_COLUMNS."""
    return _sound(_entry, row)


def session_column(session_key: str | None) -> str:
    """Return a session as it is stored; none is the empty text, so that it can be unique."""
    return "" if session_key is None else session_key


def id_column(value: Id | None) -> str:
    """Return an id as it is stored, its type kept."""
    return json.dumps(value)


def chain_column(chain: Iterable[Subject]) -> str:
    """Return a chain as it is stored."""
    return json.dumps([[str(subject.type), subject.name] for subject in chain])


def _request(row: Row) -> PendingRequest:
    origin = Origin(json.loads(row[7]), json.loads(row[8]), row[6] or None, json.loads(row[9]))
    chain = tuple(Subject(SubjectType(kind), name) for kind, name in json.loads(row[10]))
    return PendingRequest(
        id=row[0],
        subject=_subject(row),
        rule=_rule(row),
        origin=origin,
        chain=chain,
        held=bool(row[11]),
        first_seen=row[12],
        last_seen=row[13],
        count=row[14],
        state=State(row[15]),
        scope=None if row[16] is None else Scope(row[16]),
        decided_by=row[17],
        decided_at=row[18],
        decision_id=row[19],
        resume_action=row[20],
        resume_state=ResumeState(row[21]),
        revision=row[22],
        expires_at=row[23],
    )


def _standing(row: Row) -> Standing:
    what = (_subject(row), _rule(row), Scope(row[6]), row[7] or None)
    return Standing(row[0], *what, decided_by=row[8], decided_at=row[9], request_id=row[10])


def _entry(row: Row) -> HistoryEntry:
    scope = None if row[6] is None else Scope(row[6])
    what = (_subject(row), _rule(row), scope, row[7] or None, row[10])
    return HistoryEntry(row[0], row[9], row[8], row[11], *what)


def _subject(row: Row) -> Subject:
    return Subject(SubjectType(row[1]), row[2])


def _rule(row: Row) -> Rule:
    target = bytes(row[5]).decode("utf-8", "surrogateescape")
    return Rule(ResourceType(row[3]), Operation(row[4]), target)


def _sound(read: Callable[[Row], Value], row: Row) -> Value:
    try:
        return read(row)
    except (ValueError, TypeError, LookupError) as error:
        raise ApprovalCheckFailed("the store holds a row that makes no sense") from error
