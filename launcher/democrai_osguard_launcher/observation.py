"""Runs that are looked at: under their policy, or with everything allowed.

What is allowed then is everything that rules can allow. What no command gets it does not get here
either, so that a command which runs while it is observed runs under the rules that were seen.
"""

from __future__ import annotations

from . import kernel
from .confinement import open_report
from .errors import NotEnforced
from .facts import gather
from .plan import Facts, Plan, make_plan
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
    if options.trace:
        return plan, rules, Watch(file, plan, command=options.command, mode=REFUSED)
    watch = Watch(file, plan, command=options.command, mode=NEEDED)
    everything = (*rules, *_EVERYTHING)
    return _open_plan(everything, command), everything, watch


def _open_plan(rules: tuple[Rule, ...], command: Program) -> Plan:
    """Plan for rules that open everything, and for every kind of socket."""
    known = dict(zip(Facts._fields, gather(rules, command, None), strict=True))
    open_facts = Facts(**{**known, "helper": False})  # type: ignore[arg-type] # nobody is asked to hold addresses
    fields = dict(zip(Plan._fields, make_plan(rules, open_facts), strict=True))
    return Plan(**{**fields, "sockets": tuple(SOCKETS)})  # type: ignore[arg-type]
