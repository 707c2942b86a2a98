"""Requests as rows: one open row for each identity and session, whoever asks and how often."""

# ruff: noqa: S608 - what is put into statements are names of our own columns
from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING

from democrai_osguard.access import Rule, Scope, Subject
from democrai_osguard.approvals.covering import encoded
from democrai_osguard.approvals.errors import TooManyRequests, UnknownRequest
from democrai_osguard.approvals.records import (
    HistoryEntry,
    Origin,
    PendingRequest,
    ResumeState,
    State,
)
from democrai_osguard.approvals.rows import (
    ABOUT,
    REQUEST_COLUMNS,
    about,
    chain_column,
    id_column,
    request_of,
    session_column,
    target_digest,
)
from democrai_osguard.policy.ruleset import RuleSet

if TYPE_CHECKING:
    from collections.abc import Callable

    from democrai_osguard.approvals.database import Database, Transaction

OPEN_LIMIT = 1000  # open requests of one subject
UNDO_SECONDS = 60.0  # how long a decision can be taken back as if it had not been made
HELD_SECONDS = 10.0  # how long a held call counts as waiting after it last said so
RETAIN_SECONDS = 30 * 24 * 3600.0  # how long closed requests are kept


@dataclass(frozen=True, slots=True)
class Asked:
    """A request as it is registered."""

    subject: Subject
    rule: Rule
    origin: Origin
    chain: tuple[Subject, ...]
    at: float
    expires_at: float | None = None
    held: bool = False
    resume_action: str | None = None
    seal: Callable[[str], bytes] | None = None  # from the request's id to the sealed context


def register(transaction: Transaction, asked: Asked, revision: int) -> PendingRequest:
    """Count the request in its open row, or open one."""
    found = transaction.execute(
        f"SELECT id, resume_state FROM approval_requests WHERE {ABOUT} AND target_digest = ?"
        " AND session_key = ? AND state = 'pending'",
        (
            *about(asked.subject, asked.rule),
            target_digest(asked.rule),
            session_column(asked.origin.session_key),
        ),
    )
    if not found:
        return _open(transaction, asked, revision)
    request_id, resume_state = found[0]
    transaction.change(
        # A call that waits does not shorten the time of whoever asked without waiting.
        "UPDATE approval_requests SET asked = asked + 1, last_seen = ?, expires_at ="
        " CASE WHEN ? = 1 AND (expires_at IS NULL OR expires_at > ?) THEN expires_at ELSE ? END,"
        " held = CASE WHEN ? = 1 THEN 1 ELSE held END, revision = ? WHERE id = ?",
        (
            asked.at, int(asked.held), asked.expires_at, asked.expires_at, int(asked.held),
            revision, request_id,
        ),
    )  # fmt: skip
    # Whoever can be resumed first keeps that: a context and its origin are never mixed.
    if resume_state == ResumeState.NONE and asked.seal is not None:
        _take_over(transaction, request_id, asked)
    return get(transaction, request_id)


def get(transaction: Transaction, request_id: str) -> PendingRequest:
    """Return a request; raise UnknownRequest where there is none."""
    rows = transaction.execute(
        f"SELECT {REQUEST_COLUMNS} FROM approval_requests WHERE id = ?",
        (request_id,),
    )
    if not rows:
        raise UnknownRequest(f"no request has the id {request_id!a}")
    return request_of(rows[0])


def close(
    transaction: Transaction, request: PendingRequest, entry: HistoryEntry, revision: int
) -> None:
    """Mark a request as decided, and what waits behind it as ready or withdrawn."""
    states = {"approve": State.APPROVED, "deny": State.DENIED, "once": State.ONCE}
    resume = ResumeState.READY if entry.act == "approve" else ResumeState.WITHDRAWN
    # Where no sealed context is left, nothing waits: it never did, or it has gone on already.
    transaction.change(
        "UPDATE approval_requests SET state = ?, scope = ?, decided_by = ?, decided_at = ?,"
        " decision_id = ?, revision = ?, resume_state ="
        " CASE WHEN resume_sealed IS NULL THEN resume_state ELSE ? END WHERE id = ?",
        (
            str(states[entry.act]), None if entry.scope is None else str(entry.scope), entry.by,
            entry.at, entry.id, revision, str(resume), request.id,
        ),
    )  # fmt: skip


def also_answered(transaction: Transaction, entry: HistoryEntry) -> list[PendingRequest]:
    """Return the other open requests that a decision answers."""
    if entry.scope is None:
        return []
    rows = transaction.execute(
        f"SELECT {REQUEST_COLUMNS} FROM approval_requests WHERE {ABOUT} AND state = 'pending'",
        about(entry.subject, entry.rule),
    )
    rules = RuleSet([entry.rule], wide=entry.scope is Scope.DENIED)
    return [
        request
        for request in map(request_of, rows)
        if rules.covers(request.rule)
        and (entry.scope is not Scope.SESSION or request.origin.session_key == entry.session_key)
    ]


def reopen(transaction: Transaction, decision_id: int, revision: int) -> list[str]:
    """Open the requests that a decision closed; return those that could not be."""
    rows = transaction.execute(
        f"SELECT {REQUEST_COLUMNS} FROM approval_requests WHERE decision_id = ?",
        (decision_id,),
    )
    return [
        request.id
        for request in map(request_of, rows)
        if not _reopened(transaction, request, revision)
    ]


def expire(transaction: Transaction, at: float, revision: int) -> None:
    """Close what has waited too long."""
    transaction.change(
        "UPDATE approval_requests SET state = 'expired', resume_sealed = NULL, revision = ?,"
        " resume_state = CASE resume_state WHEN 'none' THEN 'none' ELSE 'withdrawn' END"
        " WHERE state = 'pending' AND expires_at <= ?",
        (revision, at),
    )


def is_overdue(database: Database, at: float) -> bool:
    """Tell whether something has waited too long and is not closed yet."""
    return bool(
        database.fetch(
            "SELECT 1 FROM approval_requests WHERE state = 'pending' AND expires_at <= ? LIMIT 1",
            (at,),
        )
    )


def still_waits(transaction: Transaction, request_id: str, at: float) -> None:
    """Let a held request stand for a while longer; it is no news to anybody."""
    transaction.change(
        "UPDATE approval_requests SET expires_at = ?"
        " WHERE id = ? AND state = 'pending' AND expires_at < ?",
        (at + HELD_SECONDS, request_id, at + HELD_SECONDS),
    )


def forget(transaction: Transaction, at: float) -> None:
    """Drop contexts that nothing will resume, and closed requests that are old."""
    transaction.change(
        "UPDATE approval_requests SET resume_sealed = NULL WHERE resume_state = 'withdrawn'"
        " AND resume_sealed IS NOT NULL AND decided_at < ?",
        (at - UNDO_SECONDS,),
    )
    transaction.change(
        "DELETE FROM approval_requests WHERE state <> 'pending' AND last_seen < ?"
        " AND resume_state NOT IN ('ready', 'started')",
        (at - RETAIN_SECONDS,),
    )


def end_session(transaction: Transaction, session_key: str, revision: int) -> None:
    """Close the open requests of a session, and what would have gone on after approval."""
    transaction.change(
        "UPDATE approval_requests SET revision = ?, resume_sealed = NULL,"
        " state = CASE state WHEN 'pending' THEN 'ended' ELSE state END,"
        " resume_state = CASE resume_state WHEN 'none' THEN 'none' ELSE 'withdrawn' END"
        " WHERE session_key = ? AND (state = 'pending' OR resume_state = 'ready')",
        (revision, session_key),
    )


def _open(transaction: Transaction, asked: Asked, revision: int) -> PendingRequest:
    ((count,),) = transaction.execute(
        "SELECT COUNT(*) FROM approval_requests WHERE subject_type = ? AND subject_name = ?"
        " AND state = 'pending'",
        about(asked.subject, asked.rule)[:2],
    )
    if count >= OPEN_LIMIT:
        raise TooManyRequests(f"{asked.subject} has {count} open requests; decide some of them")
    request_id = secrets.token_hex(6)
    transaction.change(
        "INSERT INTO approval_requests (id, subject_type, subject_name, resource_type, operation,"
        " target, target_digest, session_key, user_id, organization_id, task_id, chain, held,"
        " first_seen, last_seen, asked, expires_at, state, resume_state, revision)"
        " VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,1,?,'pending','none',?)",
        (
            request_id, *about(asked.subject, asked.rule), encoded(asked.rule.target),
            target_digest(asked.rule), session_column(asked.origin.session_key),
            *_origin(asked.origin), chain_column(asked.chain), int(asked.held), asked.at,
            asked.at, asked.expires_at, revision,
        ),
    )  # fmt: skip
    if asked.seal is not None:
        _take_over(transaction, request_id, asked)
    return get(transaction, request_id)


def _take_over(transaction: Transaction, request_id: str, asked: Asked) -> None:
    sealed = None if asked.seal is None else asked.seal(request_id)
    transaction.change(
        "UPDATE approval_requests SET user_id = ?, organization_id = ?, task_id = ?, chain = ?,"
        " resume_action = ?, resume_state = 'waiting', resume_sealed = ? WHERE id = ?",
        (
            *_origin(asked.origin), chain_column(asked.chain), asked.resume_action, sealed,
            request_id,
        ),
    )  # fmt: skip


def _origin(origin: Origin) -> tuple[str, str, str]:
    return id_column(origin.user_id), id_column(origin.organization_id), id_column(origin.task_id)


def _reopened(transaction: Transaction, request: PendingRequest, revision: int) -> bool:
    if request.state is State.USED or request.resume_state not in {
        ResumeState.NONE, ResumeState.READY, ResumeState.WITHDRAWN,
    }:  # fmt: skip
        return False
    twin = transaction.execute(
        f"SELECT id FROM approval_requests WHERE {ABOUT} AND target_digest = ?"
        " AND session_key = ? AND state = 'pending'",
        (
            *about(request.subject, request.rule),
            target_digest(request.rule),
            session_column(request.origin.session_key),
        ),
    )
    if twin:
        return False
    transaction.change(
        "UPDATE approval_requests SET state = 'pending', scope = NULL, decided_by = NULL,"
        " decided_at = NULL, decision_id = NULL, revision = ?, resume_state ="
        " CASE WHEN resume_sealed IS NULL THEN resume_state ELSE 'waiting' END WHERE id = ?",
        (revision, request.id),
    )
    return True
