"""The store in a database: each method one transaction, or one query."""

# ruff: noqa: S608 - what is put into statements are names of our own columns
from __future__ import annotations

from typing import TYPE_CHECKING

from democrai_osguard.access import Scope
from democrai_osguard.approvals import request_table, resume_table, standing_table
from democrai_osguard.approvals.errors import (
    NotApprovable,
    SessionKeyRequired,
    UnknownDecision,
)
from democrai_osguard.approvals.records import (
    HistoryEntry,
    Outcome,
    PendingRequest,
    ResumeState,
    Standing,
    State,
)
from democrai_osguard.approvals.rows import (
    HISTORY_COLUMNS,
    REQUEST_COLUMNS,
    STANDING_COLUMNS,
    entry_of,
    request_of,
    standing_of,
)
from democrai_osguard.approvals.schema import migrate
from democrai_osguard.approvals.store import LIST_LIMIT, Ruling

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from democrai_osguard.access import AccessRequest
    from democrai_osguard.approvals.database import Database, Transaction
    from democrai_osguard.approvals.request_table import Asked
    from democrai_osguard.approvals.standing_table import Found
    from democrai_osguard.approvals.store import Witness


class SqlStore:
    """The store in a database."""

    url: str | None = None  # by which another process can open it

    def __init__(self, database: Database) -> None:
        self.database = database
        migrate(database)

    def files(self) -> tuple[str, ...]:
        """Return the files that it is in, each with what lies beside it by the same name."""
        return () if self.database.path is None else (self.database.path,)

    def covering(self, request: AccessRequest) -> list[Found]:
        """Return the decisions that may be about a request, oldest first."""
        return standing_table.covering(self.database, request)

    def generation(self) -> int:
        """Return a number that changes with every decision."""
        return self._meta("generation")

    def revision(self) -> int:
        """Return a number that changes with everything."""
        return self._meta("revision")

    def register(self, asked: Asked) -> PendingRequest:
        """Open a request, or count it in its open row."""
        with self.database.write() as transaction:
            revision = _next_revision(transaction)
            request_table.expire(transaction, asked.at, revision)
            return request_table.register(transaction, asked, revision)

    def decide(self, ruling: Ruling, witness: Witness) -> Outcome:
        """Decide a request, once."""
        with self.database.write() as transaction:
            revision = _next_revision(transaction)
            request_table.expire(transaction, ruling.at, revision)
            request_table.forget(transaction, ruling.at)
            request = request_table.get(transaction, ruling.request_id)
            if not _open_to(ruling, request):
                return Outcome(applied=False, request=request, agrees=_agrees(ruling, request))
            entry = _entry(ruling, request)
            if entry.scope is None:
                written = standing_table.write_history(transaction, entry)
            else:
                written = standing_table.record(transaction, entry)
            request_table.close(transaction, request, written, revision)
            others = request_table.also_answered(transaction, written)
            for other in others:
                request_table.close(transaction, other, written, revision)
            _after(transaction, written, revision)
            witness(written)
            now = request_table.get(transaction, request.id)
        return Outcome(True, now, written, settled=tuple(other.id for other in others))  # noqa: FBT003 - Outcome's first word

    def record(self, entry: HistoryEntry, witness: Witness) -> HistoryEntry:
        """Record a decision that no request asked for."""
        with self.database.write() as transaction:
            revision = _next_revision(transaction)
            request_table.expire(transaction, entry.at, revision)
            written = standing_table.record(transaction, entry)
            for other in request_table.also_answered(transaction, written):
                request_table.close(transaction, other, written, revision)
            _after(transaction, written, revision)
            witness(written)
        return written

    def revoke(self, decision_id: int, by: str, at: float, witness: Witness) -> HistoryEntry:
        """End a decision that stands."""
        with self.database.write() as transaction:
            revision = _next_revision(transaction)
            gone = standing_table.remove(transaction, decision_id)
            if gone is None:
                raise UnknownDecision(f"no decision with the number {decision_id} stands")
            written = standing_table.write_history(transaction, _ending(gone, "revoke", by, at))
            _after(transaction, written, revision)
            witness(written)
        return written

    def undo(self, decision_id: int, by: str, at: float, witness: Witness) -> Outcome:
        """Take a decision back as if it had not been made."""
        with self.database.write() as transaction:
            revision = _next_revision(transaction)
            entry = _undoable(transaction, decision_id, at)
            if entry.scope is not None:
                if standing_table.remove(transaction, decision_id) is None:
                    raise UnknownDecision(f"decision {decision_id} no longer stands")
                standing_table.restore(transaction, entry)
            stuck = request_table.reopen(transaction, decision_id, revision)
            back = HistoryEntry(
                0, at, by, "undo", entry.subject, entry.rule, entry.scope, entry.session_key,
                entry.request_id,
            )  # fmt: skip
            written = standing_table.write_history(transaction, back)
            witness(written)
            request = None
            if entry.request_id is not None:
                request = request_table.get(transaction, entry.request_id)
        return Outcome(True, request, written, agrees=not stuck)  # noqa: FBT003 - as above

    def end_session(self, session_key: str, at: float, witness: Witness) -> int:
        """End a session's approvals and open requests; return how many approvals there were."""
        with self.database.write() as transaction:
            revision = _next_revision(transaction)
            ended = standing_table.remove_session(transaction, session_key)
            for gone in ended:
                entry = _ending(gone, "end_session", "session", at)
                witness(standing_table.write_history(transaction, entry))
            request_table.end_session(transaction, session_key, revision)
        return len(ended)

    def take_once(self, request_id: str) -> bool:
        """Use up an answer that was given once; tell whether there was one."""
        with self.database.write() as transaction:
            revision = _next_revision(transaction)
            used = transaction.change(
                "UPDATE approval_requests SET state = 'used', revision = ?"
                " WHERE id = ? AND state = 'once'",
                (revision, request_id),
            )
        return used == 1

    def withdraw(self, request_id: str) -> bool:
        """Close an open request that nobody waits for any more; tell whether it was open."""
        with self.database.write() as transaction:
            revision = _next_revision(transaction)
            closed = transaction.change(
                "UPDATE approval_requests SET state = 'ended', revision = ?"
                " WHERE id = ? AND state = 'pending' AND resume_state = 'none'",
                (revision, request_id),
            )
        return closed == 1

    def still_waits(self, request_id: str, at: float) -> None:
        """Note that the call of an open request still waits."""
        with self.database.write() as transaction:
            request_table.still_waits(transaction, request_id, at)

    def expire(self, at: float) -> None:
        """Close what has waited too long, and what nobody waits for any more."""
        if request_table.is_overdue(self.database, at):
            with self.database.write() as transaction:
                request_table.expire(transaction, at, _next_revision(transaction))

    def get(self, request_id: str) -> PendingRequest:
        """Return one request."""
        return request_table.get(_Reading(self.database), request_id)

    def requests(
        self, *, at: float, pending: bool = True, after: int = 0, limit: int = LIST_LIMIT
    ) -> list[PendingRequest]:
        """Return requests that changed after a revision, in the order in which they did."""
        only = " AND state = 'pending' AND (expires_at IS NULL OR expires_at > ?)"
        rows = self.database.fetch(
            f"SELECT {REQUEST_COLUMNS} FROM approval_requests WHERE revision > ?"
            f"{only if pending else ''} ORDER BY revision, id LIMIT ?",
            (after, at, limit) if pending else (after, limit),
        )
        return list(map(request_of, rows))

    def standing(self, *, limit: int = LIST_LIMIT, after: int = 0) -> list[Standing]:
        """Return the decisions that stand, by number."""
        rows = self.database.fetch(
            f"SELECT {STANDING_COLUMNS} FROM approval_standing WHERE id > ? ORDER BY id LIMIT ?",
            (after, limit),
        )
        return list(map(standing_of, rows))

    def history(self, *, limit: int = LIST_LIMIT) -> list[HistoryEntry]:
        """Return what was decided, newest first."""
        rows = self.database.fetch(
            f"SELECT {HISTORY_COLUMNS} FROM approval_history ORDER BY id DESC LIMIT ?",
            (limit,),
        )
        return list(map(entry_of, rows))

    def ready_resumes(self) -> list[PendingRequest]:
        """Return the approved requests whose resume action has not been started."""
        return resume_table.ready(self.database)

    def claim_resume(self, request_id: str) -> bytes | None:
        """Return the sealed context to the one caller that is to run it; None to the others."""
        with self.database.write() as transaction:
            return resume_table.claim(transaction, request_id, _next_revision(transaction))

    def finish_resume(self, request_id: str, state: ResumeState) -> None:
        """Note how a resume action ended."""
        with self.database.write() as transaction:
            resume_table.finish(transaction, request_id, state, _next_revision(transaction))

    def reseal(self, again: Callable[[PendingRequest, bytes], bytes]) -> int:
        """Seal every stored context anew; return how many."""
        with self.database.write() as transaction:
            _next_revision(transaction)
            return resume_table.reseal(transaction, again)

    def wait(self, known: int, timeout: float) -> int:
        """Return the revision once it is not the known one, or after the timeout."""
        return self.database.wait(known, timeout)

    def close(self) -> None:
        """Let go of the database."""
        self.database.close()

    def _meta(self, name: str) -> int:
        rows = self.database.fetch("SELECT value FROM approval_meta WHERE name = ?", (name,))
        return int(rows[0][0])


class _Reading:
    """A database where a transaction is expected, for a single query."""

    def __init__(self, database: Database) -> None:
        self.execute = database.fetch

    def change(self, sql: str, values: Sequence[object] = ()) -> int:
        raise NotImplementedError(sql, values)


def _next_revision(transaction: Transaction) -> int:
    # First in every transaction: on a server this row is the lock that makes writers queue.
    rows = transaction.execute(
        "UPDATE approval_meta SET value = value + 1 WHERE name = 'revision' RETURNING value"
    )
    return int(rows[0][0])


def _after(transaction: Transaction, entry: HistoryEntry, revision: int) -> None:
    if entry.act in {"deny", "revoke"}:
        resume_table.withdraw_orphans(transaction, revision)


def _open_to(ruling: Ruling, request: PendingRequest) -> bool:
    if ruling.scope is Scope.SESSION and request.origin.session_key is None:
        raise SessionKeyRequired(f"request {request.id} has no session; approve it permanently")
    if ruling.scope is None and not request.held:
        raise NotApprovable(f"request {request.id} has no call that waits for an answer")
    if request.state is State.PENDING:
        return True
    decided = request.state in {State.APPROVED, State.DENIED}
    return ruling.overrule and decided and not _agrees(ruling, request)


def _agrees(ruling: Ruling, request: PendingRequest) -> bool:
    if ruling.scope is None:
        return request.state in {State.ONCE, State.USED}
    return request.state in {State.APPROVED, State.DENIED} and request.scope is ruling.scope


def _entry(ruling: Ruling, request: PendingRequest) -> HistoryEntry:
    acts = {None: "once", Scope.DENIED: "deny"}
    session = request.origin.session_key if ruling.scope is Scope.SESSION else None
    rule = request.rule if ruling.rule is None else ruling.rule
    act = acts.get(ruling.scope, "approve")
    what = (request.subject, rule, ruling.scope, session, request.id)
    return HistoryEntry(0, ruling.at, ruling.by, act, *what)


def _ending(gone: Standing, act: str, by: str, at: float) -> HistoryEntry:
    what = (gone.subject, gone.rule, gone.scope, gone.session_key, gone.request_id)
    return HistoryEntry(0, at, by, act, *what)


def _undoable(transaction: Transaction, decision_id: int, at: float) -> HistoryEntry:
    rows = transaction.execute(
        f"SELECT {HISTORY_COLUMNS} FROM approval_history WHERE id = ?",
        (decision_id,),
    )
    entry = entry_of(rows[0]) if rows else None
    if entry is None or entry.act not in {"approve", "deny", "once"}:
        raise UnknownDecision(f"{decision_id} is no decision")
    if at - entry.at > request_table.UNDO_SECONDS:
        raise UnknownDecision(
            f"decision {decision_id} is more than {request_table.UNDO_SECONDS:.0f} seconds old;"
            " revoke it instead"
        )
    return entry
