"""The broker of a run that is looked at: more calls wait for it, and none ends differently.

The programs that any other run would have loaded into the kernel are asked here, with the same
registers: what they refuse is refused, what they would send to the broker is brokered, and all
else goes on to the kernel, where Landlock stands as ever.
"""

from __future__ import annotations

import os

from . import bpf
from .bpf_evaluation import Evaluation, refusal
from .broker import Broker
from .brokered import Descriptor, GoOn

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from .broker import Roots
    from .caller import Call
    from .watch import Watch


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

    def answer(self, name: str, call: Call) -> int | Descriptor:
        """Answer as a run would that nobody looks at."""
        explained = self._watch.look(name, call)
        code = refusal(self._arguments.action(call.number, call.arguments))
        if code is not None:
            if not explained:
                self._watch.refused(name, call)
            raise OSError(code, os.strerror(code))
        if self._waiting.action(call.number, call.arguments) == bpf.NOTIFY:
            return super().answer(name, call)
        raise GoOn
