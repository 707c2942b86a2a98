"""Writes to the audit log what the service did: decisions before they count, refusals after.

A log that cannot be written opens nothing: a decision or a bypass does not happen then, and a
refusal stays one.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from typing import TYPE_CHECKING, TypeVar

from democrai_osguard.approvals.records import session_label
from democrai_osguard.approvals.refusals import Refusal, RefusalMeter

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from democrai_osguard.access import AccessRequest
    from democrai_osguard.approvals.records import HistoryEntry
    from democrai_osguard.approvals.refusals import Counted
    from democrai_osguard.approvals.store import Witness
    from democrai_osguard.audit.log import AuditLog

Result = TypeVar("Result")

_log = logging.getLogger("democrai_osguard.approvals")


class Journal:
    """The audit log as the service uses it; without one it keeps nothing."""

    def __init__(self, audit: AuditLog | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._audit = audit
        self._clock = clock
        self._meter = RefusalMeter(clock())
        # A finalizer may be refused something while this very thread counts.
        self._lock = threading.RLock()
        self._owner = os.getpid()
        self._writing = threading.local()

    def deciding(self, act: Callable[[Witness], Result]) -> Result:
        """Let an act decide, each decision written down before it is committed."""
        written: list[HistoryEntry] = []

        def witness(entry: HistoryEntry) -> None:
            self._record("decision", {"decision": entry.document()})
            written.append(entry)

        try:
            return act(witness)
        except BaseException:
            self._unconfirmed(written)
            raise

    def refused(self, refusal: Refusal) -> None:
        """Write a refusal down, or count it. Where the log fails it stays a refusal."""
        if self._audit is None:
            return
        with self._own_lock():
            counted = self._meter.counted(self._clock())
            admitted = self._meter.admits(refusal, self._clock())
        self._write_counted(counted)
        if admitted:
            self._write("refusal", refusal.fields(), stands_for=1)

    def bypassed(self, fields: Mapping[str, object]) -> None:
        """Write down that something goes past the rules; raise where that is not possible."""
        self._record("bypass", fields)

    def answered(self, answer: str, request: AccessRequest) -> None:
        """Write down what a question was answered; raise where that is not possible."""
        self._record("answer", {"answer": answer, **fields_of(request)})

    def flush(self) -> None:
        """Write down what was only counted so far."""
        with self._own_lock():
            counted = self._meter.counted(self._clock(), at_once=True)
        self._write_counted(counted)

    def _own_lock(self) -> threading.RLock:
        if self._owner != os.getpid():  # a fork may have been made while another thread held it
            self._lock, self._owner = threading.RLock(), os.getpid()
            self._meter = RefusalMeter(self._clock())  # what was counted is the parent's to write
        return self._lock

    def _write_counted(self, counted: Counted) -> None:
        for refusal, count in counted.repeated:
            self._write("refusal", refusal.fields(count), stands_for=count)
        if counted.omitted:
            fields = {"count": counted.omitted}
            self._write("refusals_omitted", fields, stands_for=counted.omitted)

    def _write(self, event: str, fields: Mapping[str, object], *, stands_for: int) -> None:
        """Write what was refused; where that fails, count it, so that the log says so later."""
        if getattr(self._writing, "now", False):  # a finalizer was refused, amid another record
            self._omit(stands_for)
            return
        try:
            self._record(event, fields, durable=False)
        except RuntimeError:
            self._omit(stands_for)
            _log.exception("a refusal could not be written to the audit log")

    def _record(self, event: str, fields: Mapping[str, object], *, durable: bool = True) -> None:
        if self._audit is None:
            return
        self._writing.now = True
        try:
            self._audit.record(event, fields, durable=durable)
        finally:
            self._writing.now = False

    def _omit(self, count: int) -> None:
        with self._own_lock():
            self._meter.omit(count)

    def _unconfirmed(self, written: list[HistoryEntry]) -> None:
        """Note that what was written down last may not have been committed."""
        if written:
            self._record("unconfirmed", {"decisions": [entry.id for entry in written]})


def refusal_of(request: AccessRequest, code: str, reason: str) -> Refusal:
    """Return the refusal of a request."""
    return Refusal.of(
        code=code,
        reason=reason,
        subject=str(request.subject),
        resource_type=str(request.resource_type),
        operation=str(request.operation),
        target=request.target,
        session=session_label(request.session_key),
    )


def fields_of(request: AccessRequest) -> dict[str, object]:
    """Return what was asked for, as the audit log keeps it."""
    return {
        "subject": str(request.subject),
        "resource_type": str(request.resource_type),
        "operation": str(request.operation),
        "target": request.target,
        "session": session_label(request.session_key),
    }
