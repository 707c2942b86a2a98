"""The last steps before exec: split off the supervisor, enforce, try it, write the receipt."""

# ruff: noqa: PLC0415 - what most launches do not need is imported where it is needed

from __future__ import annotations

import os

from . import kernel, landlock, receipt
from .enforcement import Restrictions, assemble, enforce, prepare
from .errors import NotEnforced
from .plan import SOCKET_PATHS
from .record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from .options import Options
    from .plan import Plan
    from .receipt import Candidates
    from .supervision import Channel, Companion

UMASK = 0o077  # what the command creates is its user's alone


class Ready(Record):
    """A command about to be confined: what was prepared, and what will be tried."""

    restrictions: Restrictions
    candidates: Candidates
    supervised: bool
    companion: Companion | None = None
    own_session: bool = True  # for a command that has a supervisor


def make_ready(
    plan: Plan, seen: Mapping[str, tuple[int, int]], companion: Companion | None = None
) -> Ready:
    """Prepare everything that can be prepared before the command's process exists."""
    supervised = needs_supervisor(plan, companion)
    also = companion.waiting if companion else None
    restrictions = prepare(plan, assemble(plan, supervised=supervised, also=also))
    candidates = receipt.Surroundings(plan, seen).look_around()
    return Ready(restrictions, candidates, supervised, companion)


def in_the_group(ready: Ready, *, is_alone: bool) -> Ready:
    """Leave a supervised command in its supervisor's process group, where that endangers nobody.

    There may be no terminal to be typed into, and nobody that the command could signal: the others
    are out of its reach, or there are none.
    """
    holds_signals = ready.restrictions.plan.handled.scopes & landlock.SCOPE_SIGNAL
    own_session = _has_terminal() or not (holds_signals or is_alone)
    return Ready(*ready[:-1], own_session)


def needs_supervisor(plan: Plan, companion: Companion | None = None) -> bool:
    """Tell whether a process must stay outside: to see calls, or because there is a terminal."""
    return bool(plan.brokered or companion) or _has_terminal()


def confine(ready: Ready, options: Options, environment: Mapping[str, str]) -> None:
    """Return in the process that is to become the command, confined and tried."""
    restrictions, candidates, supervised, companion, own_session = ready
    plan = restrictions.plan
    record = None
    if options.receipt:
        import json  # now: once confined, this process may no longer be able to read modules

        from .explain import as_document
        from .report import open_report, write_whole

        record = open_report("--receipt", options.receipt)
    if options.limits:
        from . import limits
    if plan.endpoints:
        from . import egress, network_trials
    if SOCKET_PATHS in plan.brokered:
        from . import socket_trials
    os.umask(UMASK)  # before the split: the broker knows it then
    channel = _split(plan, companion, own_session=own_session) if supervised else None
    required = "none" if options.observe else options.require
    sandbox = egress.confine(plan.endpoints, environment, required) if plan.by_address else None
    held = receipt.hold(candidates)
    ours = (record, held.program, held.command)
    enforce(restrictions, {*options.keep_fds, *(fd for fd in ours if isinstance(fd, int))}, channel)
    on_network = network_trials.network_trials(plan, sandbox) if plan.endpoints else ()
    on_sockets = socket_trials.socket_trials(plan) if SOCKET_PATHS in plan.brokered else ()
    trials = receipt.attempt(plan, candidates, held, (*on_network, *on_sockets))
    if record is not None:
        text = json.dumps(receipt.as_document(as_document(plan), trials), indent=2)
        try:
            write_whole(record, text.encode())
        except OSError as error:
            raise NotEnforced(f"refused: --receipt: {options.receipt}: {error.strerror}") from error
    kernel.forbid_core_dumps()
    if options.limits:
        limits.apply(options.limits)


def _split(plan: Plan, companion: Companion | None, *, own_session: bool) -> Channel:
    from . import supervision

    return supervision.split(plan, companion, own_session=own_session)


def _has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError:
        return False
    return True
