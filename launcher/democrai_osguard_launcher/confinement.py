"""The last steps before exec: split off the supervisor, enforce, try it, write the receipt."""

# ruff: noqa: PLC0415 - what most launches do not need is imported where it is needed

from __future__ import annotations

import os

from . import kernel, receipt
from .enforcement import Restrictions, enforce, prepare
from .errors import UsageError
from .record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from .options import Options
    from .plan import Plan
    from .receipt import Candidates
    from .supervision import Channel, Companion

_UMASK = 0o077  # what the command creates is its user's alone
_REPORT_MODE = 0o600


class Ready(Record):
    """A command about to be confined: what was prepared, and what will be tried."""

    restrictions: Restrictions
    candidates: Candidates
    supervised: bool
    companion: Companion | None = None


def make_ready(plan: Plan, companion: Companion | None = None) -> Ready:
    """Prepare everything that can be prepared before the command's process exists."""
    supervised = bool(plan.brokered or companion) or _has_terminal()
    also = companion.waiting if companion else None
    restrictions = prepare(plan, supervised=supervised, also=also)
    return Ready(restrictions, receipt.look_around(plan), supervised, companion)


def confine(ready: Ready, options: Options, environment: Mapping[str, str]) -> None:
    """Return in the process that is to become the command, confined and tried."""
    restrictions, candidates, supervised, companion = ready
    plan = restrictions.plan
    record = open_report("--receipt", options.receipt) if options.receipt else None
    if record is not None:
        import json  # now: once confined, this process may no longer be able to read modules

        from .explain import as_document
    if options.limits:
        from . import limits
    if plan.endpoints:
        from . import egress, network_trials
    channel = _split(plan, companion) if supervised else None
    sandbox = egress.confine(plan.endpoints, environment) if plan.by_address else None
    ours = (record, candidates.program, candidates.command)
    enforce(restrictions, {*options.keep_fds, *(fd for fd in ours if fd is not None)}, channel)
    on_network = network_trials.network_trials(plan, sandbox) if plan.endpoints else ()
    trials = receipt.attempt(plan, candidates, on_network)
    if record is not None:
        text = json.dumps(receipt.as_document(as_document(plan), trials), indent=2)
        os.write(record, text.encode())
    os.umask(_UMASK)
    kernel.forbid_core_dumps()
    if options.limits:
        limits.apply(options.limits)


def _split(plan: Plan, companion: Companion | None) -> Channel:
    from . import supervision

    return supervision.split(plan, companion)


def _has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError:
        return False
    return True


def open_report(option: str, path: str) -> int:
    """Open a file to write to, named by an option; raise UsageError when that fails."""
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        return os.open(path, flags, _REPORT_MODE)
    except OSError as error:
        raise UsageError(f"{option}: {path}: {error.strerror}") from error
