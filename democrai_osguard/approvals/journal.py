"""Writes to the audit log what the service did: decisions before they count, refusals after."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, TypeVar

from democrai_osguard.approvals.records import session_label

if TYPE_CHECKING:
    from collections.abc import Callable

    from democrai_osguard.access import AccessRequest
    from democrai_osguard.approvals.records import HistoryEntry
    from democrai_osguard.approvals.store import Witness
    from democrai_osguard.audit.log import AuditLog

Result = TypeVar("Result")

_log = logging.getLogger("democrai_osguard.approvals")


class Journal:
    """The audit log as the service uses it; without one it keeps nothing."""

    def __init__(self, audit: AuditLog | None) -> None:
        self._audit = audit

    def deciding(self, act: Callable[[Witness], Result]) -> Result:
        """Let an act decide, each decision written down before it is committed."""
        written: list[HistoryEntry] = []

        def witness(entry: HistoryEntry) -> None:
            if self._audit is not None:
                self._audit.record("decision", {"decision": entry.document()})
            written.append(entry)

        try:
            return act(witness)
        except BaseException:
            self._unconfirmed(written)
            raise

    def refused(self, request: AccessRequest, code: str, reason: str) -> None:
        """Write a refusal down. A log that fails does not turn it into anything else."""
        if self._audit is None:
            return
        try:
            fields = {"code": code, "reason": reason, **_asked(request)}
            self._audit.record("refusal", fields, durable=False)
        except RuntimeError:
            _log.exception("a refusal could not be written to the audit log")

    def bypassed(self, request: AccessRequest, why: str) -> None:
        """Write down that a mode let something through; raise where that is not possible."""
        if self._audit is not None:
            self._audit.record("bypass", {"why": why, **_asked(request)})

    def _unconfirmed(self, written: list[HistoryEntry]) -> None:
        """Note that what was written down last may not have been committed."""
        if self._audit is not None and written:
            numbers = [entry.id for entry in written]
            self._audit.record("unconfirmed", {"decisions": numbers})


def _asked(request: AccessRequest) -> dict[str, object]:
    return {
        "subject": str(request.subject),
        "resource_type": str(request.resource_type),
        "operation": str(request.operation),
        "target": request.target,
        "session": session_label(request.session_key),
    }
