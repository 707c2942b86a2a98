"""Decisions that stand, as rows: found by covering keys, replaced by newer ones.

The newest decision about one thing stands: a denial ends every approval of it, a permanent
approval ends the denial. A session approval lifts it in its own session only, so both stay.
"""

# ruff: noqa: S608 - what is put into statements are names of our own columns
from __future__ import annotations

import functools
import json
from typing import TYPE_CHECKING, NamedTuple

from democrai_osguard.access import Scope
from democrai_osguard.approvals.covering import digest, encoded, request_keys, rule_key
from democrai_osguard.approvals.errors import ApprovalCheckFailed
from democrai_osguard.approvals.records import HistoryEntry, Standing
from democrai_osguard.approvals.rows import (
    ABOUT,
    HISTORY_COLUMNS,
    STANDING_COLUMNS,
    about,
    entry_of,
    session_column,
    standing_of,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from democrai_osguard.access import AccessRequest
    from democrai_osguard.approvals.database import Database, Row, Transaction


class Found(NamedTuple):
    """A decision as the look-up finds it: enough to match, quick to make."""

    id: int
    scope: Scope
    target: str


def covering(database: Database, request: AccessRequest) -> list[Found]:
    """Return what is filed where a decision about the request can be, oldest first."""
    subject = request.subject.identity
    resource_type, operation = request.resource_type, request.operation
    keys = request_keys(subject, resource_type, operation, request.target)
    session = request.session_key
    # What is not printable was never approved, and no database would take it.
    sessions = ("", session) if session is not None and session.isprintable() else ("",)
    holder = (subject.type.value, subject.name, resource_type.value, operation.value)
    values = (*keys, *sessions, *holder)
    rows = database.fetch(_covering(len(keys), len(sessions)), values)
    return sorted(map(_found, rows)) if rows else []


@functools.lru_cache(maxsize=256)
def _covering(keys: int, sessions: int) -> str:
    return (
        f"SELECT id, scope, target FROM approval_standing WHERE key IN ({_marks(keys)})"
        f" AND session_key IN ({_marks(sessions)}) AND {ABOUT}"
    )


def _marks(count: int) -> str:
    return ",".join("?" * count)


def _found(row: Row) -> Found:
    try:
        return Found(row[0], Scope(row[1]), bytes(row[2]).decode("utf-8", "surrogateescape"))
    except (ValueError, TypeError) as error:
        raise ApprovalCheckFailed("the store holds a row that makes no sense") from error


def record(transaction: Transaction, entry: HistoryEntry) -> HistoryEntry:
    """Write a decision that stands from now on, and its line of history; return that line."""
    replaced = _replaced(transaction, entry)
    written = write_history(transaction, entry, replaced)
    _insert(transaction, written)
    bump_generation(transaction)
    return written


def remove(transaction: Transaction, decision_id: int) -> Standing | None:
    """End a decision; return it, or None where it no longer stands."""
    rows = transaction.execute(
        f"DELETE FROM approval_standing WHERE id = ? RETURNING {STANDING_COLUMNS}",
        (decision_id,),
    )
    if not rows:
        return None
    bump_generation(transaction)
    return standing_of(rows[0])


def remove_session(transaction: Transaction, session_key: str) -> list[Standing]:
    """End every approval of a session and return them."""
    rows = transaction.execute(
        f"DELETE FROM approval_standing WHERE session_key = ? RETURNING {STANDING_COLUMNS}",
        (session_key,),
    )
    if rows:
        bump_generation(transaction)
    return list(map(standing_of, rows))


def restore(transaction: Transaction, entry: HistoryEntry) -> None:
    """Let what a decision replaced stand again."""
    ((text,),) = transaction.execute(
        "SELECT replaced FROM approval_history WHERE id = ?", (entry.id,)
    )
    for id_, scope, session, by, at, request_id in json.loads(text):
        earlier = HistoryEntry(
            id_, at, by, "approve", entry.subject, entry.rule, Scope(scope), session or None,
            request_id,
        )  # fmt: skip
        # A session may have been approved anew beside the denial that is taken back.
        _insert(transaction, earlier, unless_there=True)
    bump_generation(transaction)


def write_history(
    transaction: Transaction, entry: HistoryEntry, replaced: Sequence[Standing] = ()
) -> HistoryEntry:
    """Append a line of history and return it with its number."""
    gone = [
        (s.id, str(s.scope), session_column(s.session_key), s.decided_by, s.decided_at,
         s.request_id)
        for s in replaced
    ]  # fmt: skip
    scope = None if entry.scope is None else str(entry.scope)
    rows = transaction.execute(
        "INSERT INTO approval_history (at, by_whom, act, subject_type, subject_name,"
        " resource_type, operation, target, scope, session_key, request_id, replaced)"
        f" VALUES (?,?,?,?,?,?,?,?,?,?,?,?) RETURNING {HISTORY_COLUMNS}",
        (
            entry.at, entry.by, entry.act, *about(entry.subject, entry.rule),
            encoded(entry.rule.target), scope, session_column(entry.session_key),
            entry.request_id, json.dumps(gone),
        ),
    )  # fmt: skip
    return entry_of(rows[0])


def bump_generation(transaction: Transaction) -> None:
    """Tell caches everywhere that decisions have changed."""
    transaction.change("UPDATE approval_meta SET value = value + 1 WHERE name = 'generation'")


def _replaced(transaction: Transaction, entry: HistoryEntry) -> list[Standing]:
    sql = (
        f"DELETE FROM approval_standing WHERE key = ? AND target = ? AND {ABOUT} AND"
        " (? = 'denied' OR (? = 'permanent' AND scope <> 'session')"
        " OR (scope = ? AND session_key = ?))"
        f" RETURNING {STANDING_COLUMNS}"
    )
    scope = str(entry.scope)
    values = (
        rule_key(entry.subject, entry.rule), encoded(entry.rule.target),
        *about(entry.subject, entry.rule), scope, scope, scope, session_column(entry.session_key),
    )  # fmt: skip
    return list(map(standing_of, transaction.execute(sql, values)))


def _insert(transaction: Transaction, entry: HistoryEntry, *, unless_there: bool = False) -> None:
    what, target = about(entry.subject, entry.rule), encoded(entry.rule.target)
    where = str(entry.scope), session_column(entry.session_key)
    transaction.change(
        "INSERT INTO approval_standing (id, subject_type, subject_name, resource_type, operation,"
        " key, scope, session_key, target, identity, decided_by, decided_at, request_id)"
        f" VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?){' ON CONFLICT DO NOTHING' if unless_there else ''}",
        (
            entry.id, *what, rule_key(entry.subject, entry.rule), *where, target,
            digest(*map(str.encode, (*what, *where)), target), entry.by, entry.at,
            entry.request_id,
        ),
    )  # fmt: skip
