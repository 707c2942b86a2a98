"""Requests and decisions in plain sentences, the same in every interface. Pure.

Nothing is made safe here: a terminal and a page each escape in their own way.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from democrai_osguard.access import Rule
    from democrai_osguard.approvals.records import HistoryEntry, PendingRequest

_VERBS = {
    "connect": "connect to",
    "receive": "receive data from",
    "send": "send data to",
    "read": "read",
    "create": "create",
    "modify": "change",
    "delete": "delete",
    "execute": "run",
}
_DONE = {
    "approve": "approved",
    "deny": "denied",
    "once": "let through once",
    "revoke": "revoked",
    "undo": "took back",
    "end_session": "ended with its session",
}
_MINUTE, _HOUR, _DAY = 60, 3600, 86_400


def wants(rule: Rule) -> str:
    """Return what a rule lets its subject do: `read /srv/data`."""
    return f"{_VERBS[rule.operation]} {rule.target}"


def sentence(request: PendingRequest) -> str:
    """Return who wants to do what to which target, through whom, and how often."""
    chain = [str(subject) for subject in request.chain if subject != request.subject]
    through = f", on behalf of {' > '.join(chain)}" if chain else ""
    often = "once" if request.count == 1 else f"{request.count} times"
    return f"{request.subject} wants to {wants(request.rule)}{through}; asked {often}."


def done(entry: HistoryEntry) -> str:
    """Return who decided what, without when."""
    scope = f" ({entry.scope})" if entry.scope in {"session", "permanent"} else ""
    what = f"{entry.subject} to {wants(entry.rule)}"
    return f"{entry.by} {_DONE.get(entry.act, entry.act)}{scope}: {what}"


def no_session(request: PendingRequest) -> str:
    """Return why a request cannot be approved for a session, or nothing where it can."""
    if request.has_session:
        return ""
    return "It was asked without a session, as by scheduled work; there is none to approve it for."


def ago(at: float, now: float | None = None) -> str:
    """Return how long ago something was, in one word."""
    seconds = max(0, int((time.time() if now is None else now) - at))
    if seconds < _MINUTE:
        return f"{seconds} s"
    if seconds < _HOUR:
        return f"{seconds // _MINUTE} min"
    return f"{seconds // _HOUR} h" if seconds < _DAY else f"{seconds // _DAY} d"


def shortened(text: str, width: int) -> str:
    """Return a text that fits: its two ends say more than its middle."""
    if len(text) <= width:
        return text
    tail = width // 3
    return f"{text[: width - tail - 1]}…{text[len(text) - tail :]}"
