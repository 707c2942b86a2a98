"""Resume actions as rows. Claiming one comes before running it, so it never runs twice."""

# ruff: noqa: S608 - what is put into statements are names of our own columns
from __future__ import annotations

from typing import TYPE_CHECKING

from democrai_osguard.approvals.rows import REQUEST_COLUMNS, request_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from democrai_osguard.approvals.database import Database, Transaction
    from democrai_osguard.approvals.records import PendingRequest, ResumeState


def ready(database: Database) -> list[PendingRequest]:
    """Return the approved requests whose resume action has not been started."""
    rows = database.fetch(
        f"SELECT {REQUEST_COLUMNS} FROM approval_requests WHERE resume_state = 'ready'"
        " ORDER BY decided_at, id"
    )
    return list(map(request_of, rows))


def claim(transaction: Transaction, request_id: str, revision: int) -> bytes | None:
    """Return the sealed context to the one caller that is to run it; None to the others."""
    rows = transaction.execute(
        "SELECT resume_sealed FROM approval_requests WHERE id = ? AND resume_state = 'ready'",
        (request_id,),
    )
    if not rows:
        return None
    transaction.change(
        "UPDATE approval_requests SET resume_state = 'started', resume_sealed = NULL, revision = ?"
        " WHERE id = ?",
        (revision, request_id),
    )
    return bytes(rows[0][0] or b"")


def withdraw_orphans(transaction: Transaction, revision: int) -> None:
    """Withdraw what is ready behind an approval that no longer stands."""
    transaction.change(
        "UPDATE approval_requests SET resume_state = 'withdrawn', revision = ?"
        " WHERE resume_state = 'ready'"
        " AND decision_id NOT IN (SELECT id FROM approval_standing)",
        (revision,),
    )


def finish(transaction: Transaction, request_id: str, state: ResumeState, revision: int) -> None:
    """Note how a resume action ended."""
    transaction.change(
        "UPDATE approval_requests SET resume_state = ?, revision = ?"
        " WHERE id = ? AND resume_state = 'started'",
        (str(state), revision, request_id),
    )


def reseal(transaction: Transaction, again: Callable[[PendingRequest, bytes], bytes]) -> int:
    """Replace every sealed context by what `again` makes of it."""
    rows = transaction.execute(
        f"SELECT {REQUEST_COLUMNS}, resume_sealed FROM approval_requests"
        " WHERE resume_sealed IS NOT NULL"
    )
    for row in rows:
        sealed = again(request_of(row[:-1]), bytes(row[-1]))
        transaction.change(
            "UPDATE approval_requests SET resume_sealed = ? WHERE id = ?", (sealed, row[0])
        )
    return len(rows)
