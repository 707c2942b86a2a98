"""The broker of a run that is looked at: more calls wait for it, and none ends differently.

The programs that any other run would have loaded into the kernel are asked here, with the same
registers: what they refuse is refused, what they would send to the broker is brokered, and all
else goes on to the kernel, where Landlock stands as ever.
"""

from __future__ import annotations

import os

from . import bpf, seccomp
from .bpf_evaluation import Evaluation, refusal
from .broker import Broker
from .brokered import Descriptor, GoOn
from .enforcement import argument_program

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from .broker import Roots
    from .caller import Call
    from .plan import Plan
    from .watch import Watch


def traced_broker(plan: Plan, roots: Roots, listener: int, watch: Watch) -> TracingBroker:
    """Return the broker for a run under this plan, with the programs of that run."""
    machine = os.uname().machine
    programs = (
        argument_program(plan, plan.brokered),
        seccomp.broker_program(machine, plan.brokered),
    )
    arguments, waiting = (Evaluation(each, seccomp.ARCHITECTURES[machine]) for each in programs)
    names = seccomp.brokered_numbers(machine)
    return TracingBroker(roots, listener, names, watch, (arguments, waiting))


class TracingBroker(Broker):
    """Shows each call to the watch, then does what would have been done."""

    def __init__(
        self,
        roots: Roots,
        listener: int,
        names: Mapping[int, str],
        watch: Watch,
        programs: tuple[Evaluation, Evaluation],
    ) -> None:
        super().__init__(roots, listener, names)
        self._watch = watch
        self._arguments, self._waiting = programs

    def answer(self, name: str, call: Call) -> int | Descriptor | None:
        """Answer as a run would that nobody looks at."""
        explained = self._watch.look(name, call)
        code = refusal(self._arguments.action(call.number, call.arguments))
        if code is not None:
            if not explained:
                self._watch.refused(name, call)
            raise OSError(code, os.strerror(code))
        if self._waiting.action(call.number, call.arguments) != bpf.NOTIFY:
            if name == "sendto" and self.connections:
                self.connections.overhear(call)  # a name that may be asked for, to speak of it
            raise GoOn
        try:
            return super().answer(name, call)
        except PermissionError:
            if not explained:
                self._watch.unreached(name, call, self.connections)
            raise
