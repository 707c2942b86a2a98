"""Runs that are looked at: under their policy, or with everything allowed.

What is allowed then is everything that rules can allow. What no command gets it does not get here
either, so that a command which runs while it is observed runs under the rules that were seen.
"""

from __future__ import annotations

from . import kernel
from .errors import NotEnforced, UsageError
from .facts import gather
from .plan import Facts, Plan, make_plan
from .report import open_report
from .rules import FILESYSTEM, NETWORK, OPERATIONS, Rule
from .seccomp import SOCKETS
from .watch import NEEDED, REFUSED, Watch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .options import Options
    from .program import Program

_EVERYTHING = (
    *(Rule(FILESYSTEM, operation, "/") for operation in OPERATIONS[FILESYSTEM]),
    *(Rule(NETWORK, "connect", everywhere) for everywhere in ("0.0.0.0/0", "::/0")),
)


def prepare(
    plan: Plan, rules: tuple[Rule, ...], options: Options, command: Program
) -> tuple[Plan, tuple[Rule, ...], Watch]:
    """Return the plan and the rules to run with, and who watches."""
    if not plan.seccomp or not plan.abi or not kernel.has_notifications():
        raise NotEnforced("refused: without Landlock and seccomp's notifications nothing is seen")
    option, path = ("--trace", options.trace) if options.trace else ("--observe", options.observe)
    file = open_report(option, path or "")
    try:
        mode = REFUSED if options.trace else NEEDED
        watch = Watch(file, plan, command=options.command, mode=mode)
    except OSError as error:
        raise UsageError(f"{option}: {path}: {error.strerror}") from error
    if options.trace:
        return plan, rules, watch
    everything = (*rules, *_EVERYTHING)
    return _open_plan(everything, command), everything, watch


def _open_plan(rules: tuple[Rule, ...], command: Program) -> Plan:
    """Plan for rules that open everything, and for every kind of socket."""
    known = dict(zip(Facts._fields, gather(rules, command, None), strict=True))
    # Nobody is asked to hold addresses, and nobody is kept from the helper.
    open_facts = Facts(**{**known, "helper": False, "to_helper": frozenset()})  # type: ignore[arg-type]
    fields = dict(zip(Plan._fields, make_plan(rules, open_facts, dials=False), strict=True))
    return Plan(**{**fields, "sockets": tuple(SOCKETS)})  # type: ignore[arg-type]
