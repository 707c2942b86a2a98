"""What the page shows, as one document. No session key and no resume context is ever in it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from democrai_osguard.approvals.errors import NotWidenable
from democrai_osguard.approvals.records import resource
from democrai_osguard.approvals.request_table import UNDO_SECONDS
from democrai_osguard.approvals.widening import widened
from democrai_osguard.audit.tail import recent
from democrai_osguard.targets.network import TARGET_LIMIT
from democrai_osguard.ui import sandboxes
from democrai_osguard.ui.wording import done, no_session, wants

if TYPE_CHECKING:
    from democrai_osguard.approvals.records import HistoryEntry, PendingRequest
    from democrai_osguard.approvals.service import ApprovalService
    from democrai_osguard.audit.record import Record

SHOWN = 200  # of each list; what is beyond is counted
_OTHER_ACTS = {
    "sandbox_module_denied": "Import",
    "sandbox_subprocess_denied": "Start of a process",
    "sandbox_env_denied": "Change of a variable",
    "sandbox_introspection_denied": "Look into the interpreter",
    "sandbox_guard_denied": "Change of the guard",
}


def document(service: ApprovalService, operator: str, revision: int) -> dict[str, object]:
    """Return everything that the page shows."""
    pending = sorted(service.list_requests(), key=lambda each: (each.first_seen, each.id))
    standing = service.list_decisions()[::-1]
    return {
        "revision": revision,
        "now": time.time(),
        "operator": operator,
        "pending": [_pending(request) for request in pending[:SHOWN]],
        "pending_count": len(pending),
        "standing": [_cut(each.document()) for each in standing[:SHOWN]],
        "standing_count": len(standing),
        "history": [_entry(entry) for entry in service.list_history(SHOWN)],
        "sandboxes": [sandbox.document() for sandbox in sandboxes.running()],
        "refusals": [_refusal(record) for record in _refusals(service)],
    }


def _pending(request: PendingRequest) -> dict[str, object]:
    shown = _cut(request.document())
    verb = wants(request.rule)[: -len(request.rule.target)].strip()
    return shown | {"verb": verb, "no_session": no_session(request), "wider": _wider(request)}


def _wider(request: PendingRequest) -> dict[str, object] | None:
    try:
        wider = widened(request.rule)
    except (NotWidenable, ValueError):
        return None
    return {"resource": resource(wider.rule), "opens": wider.opens}


def _entry(entry: HistoryEntry) -> dict[str, object]:
    fresh = time.time() - entry.at < UNDO_SECONDS and entry.act in {"approve", "deny", "once"}
    return _cut(entry.document()) | {"words": done(entry)[:TARGET_LIMIT], "undoable": fresh}


def _refusals(service: ApprovalService) -> list[Record]:
    return [] if service.audit is None else recent(service.audit.folder, "refusal", SHOWN)


def _refusal(record: Record) -> dict[str, object]:
    named = ("subject", "target", "code")
    fields = {name: str(record.fields.get(name, ""))[:TARGET_LIMIT] for name in named}
    count = record.fields.get("count", 1)
    return {"at": record.at, **fields, "what": _refused_act(record), "count": count}


def _refused_act(record: Record) -> str:
    """Return what was refused, as a label reads: `Filesystem read`, `Import`."""
    kind, operation = record.fields.get("resource_type"), record.fields.get("operation")
    if kind is None:
        return _OTHER_ACTS.get(str(record.fields.get("code")), "Act")
    words = f"{str(kind).replace('_', ' ').capitalize()} {operation or ''}".strip()
    return words[:TARGET_LIMIT]


def _cut(shown: dict[str, object]) -> dict[str, object]:
    """Return a document whose target a browser can take; one that was cut cannot be approved."""
    what = shown["resource"]
    if not isinstance(what, dict) or len(what["target"]) <= TARGET_LIMIT:
        return shown
    return shown | {"resource": what | {"target": what["target"][:TARGET_LIMIT]}, "cut": True}
