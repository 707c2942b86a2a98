"""What a store of requests and decisions must do.

Every change is one transaction. What a person decided is handed to a witness before it is
committed: where the witness cannot write it down, it does not happen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from democrai_osguard.access import AccessRequest, Rule, Scope
    from democrai_osguard.approvals.records import (
        HistoryEntry,
        Outcome,
        PendingRequest,
        ResumeState,
        Standing,
    )
    from democrai_osguard.approvals.request_table import Asked
    from democrai_osguard.approvals.standing_table import Found

    Witness = Callable[[HistoryEntry], object]

LIST_LIMIT = 1000


@dataclass(frozen=True, slots=True)
class Ruling:
    """What an operator says about one request. Without a scope it is answered once."""

    request_id: str
    scope: Scope | None
    by: str
    at: float
    rule: Rule | None = None  # a wider one than was asked for
    overrule: bool = False  # whether it may replace an earlier decision


class Store(Protocol):
    """What the service needs. Each method is atomic, and raises ApprovalCheckFailed on failure."""

    def files(self) -> tuple[str, ...]:
        """Return the files that it is in, each with what lies beside it by the same name."""

    def covering(self, request: AccessRequest) -> list[Found]:
        """Return the decisions that may be about a request, oldest first."""

    def generation(self) -> int:
        """Return a number that changes with every decision."""

    def revision(self) -> int:
        """Return a number that changes with everything."""

    def register(self, asked: Asked) -> PendingRequest:
        """Open a request, or count it in its open row."""

    def decide(self, ruling: Ruling, witness: Witness) -> Outcome:
        """Decide a request, once."""

    def record(self, entry: HistoryEntry, witness: Witness) -> HistoryEntry:
        """Record a decision that no request asked for."""

    def revoke(self, decision_id: int, by: str, at: float, witness: Witness) -> HistoryEntry:
        """End a decision that stands."""

    def undo(self, decision_id: int, by: str, at: float, witness: Witness) -> Outcome:
        """Take a decision back as if it had not been made."""

    def end_session(self, session_key: str, at: float, witness: Witness) -> int:
        """End a session's approvals and open requests; return how many approvals there were."""

    def take_once(self, request_id: str) -> bool:
        """Use up an answer that was given once; tell whether there was one."""

    def withdraw(self, request_id: str) -> bool:
        """Close an open request that nobody waits for any more; tell whether it was open."""

    def still_waits(self, request_id: str, at: float) -> None:
        """Note that the call of an open request still waits."""

    def expire(self, at: float) -> None:
        """Close what has waited too long, and what nobody waits for any more."""

    def get(self, request_id: str) -> PendingRequest:
        """Return one request."""

    def requests(
        self, *, at: float, pending: bool = True, after: int = 0, limit: int = LIST_LIMIT
    ) -> list[PendingRequest]:
        """Return requests that changed after a revision, in the order in which they did."""

    def standing(self, *, limit: int = LIST_LIMIT, after: int = 0) -> list[Standing]:
        """Return the decisions that stand, by number."""

    def history(self, *, limit: int = LIST_LIMIT) -> list[HistoryEntry]:
        """Return what was decided, newest first."""

    def ready_resumes(self) -> list[PendingRequest]:
        """Return the approved requests whose resume action has not been started."""

    def claim_resume(self, request_id: str) -> bytes | None:
        """Return the sealed context to the one caller that is to run it; None to the others."""

    def finish_resume(self, request_id: str, state: ResumeState) -> None:
        """Note how a resume action ended."""

    def reseal(self, again: Callable[[PendingRequest, bytes], bytes]) -> int:
        """Seal every stored context anew; return how many."""

    def wait(self, known: int, timeout: float) -> int:
        """Return the revision once it is not the known one, or after the timeout."""

    def close(self) -> None:
        """Let go of the database."""
