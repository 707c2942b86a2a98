"""The broker of a supervised run: an act that no rule allows waits until a person has answered.

The call stays in the kernel meanwhile. After a yes it is looked up again from its arguments, and
carried out only on the very path that the person saw: what was changed in between leads to the same
refusal as ever. Acts that only the kernel can do for a process, such as starting a program, are
not asked about.
"""

from __future__ import annotations

import errno
import os

from . import acts, notification
from .asking import ONCE, YES
from .broker import Broker
from .brokered import HANDLERS, Descriptor, GoOn
from .grants import Grants
from .held_calls import HELD_HANDLERS
from .record import Record
from .seccomp import METADATA_CALLS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from .asking import Desk
    from .broker import Roots
    from .caller import Call
    from .plan import Plan

    Lack = tuple[str, str]  # operation and path

_NEVER_HELD = (acts.MOVE, "execute")
MAX_WAITING = 64  # calls; one more is refused without a question
_PATIENCE = 200  # milliseconds between two looks whether callers still live


class Held(Record):
    """A call that waits, and what it lacks an answer to."""

    name: str
    call: Call
    lacks: frozenset[Lack]
    open: set[Lack]


class HoldingBroker(Broker):
    """Asks about what the rules do not allow, and carries out what was approved."""

    def __init__(
        self, plan: Plan, roots: Roots, listener: int, names: Mapping[int, str], desk: Desk
    ) -> None:
        super().__init__(roots, listener, names)
        self._grants = Grants(plan)
        self._has_metadata = "metadata" in plan.brokered
        self._desk = desk
        self._held: dict[int, Held] = {}  # by the number of the waiting call
        self._questions: dict[Lack, int] = {}
        self._last = 0
        self._approved: frozenset[Lack] = frozenset()
        self._started = False  # what comes before the exec are the launcher's own trials

    @property
    def descriptors(self) -> tuple[int, ...]:
        """Return what to wait for: calls, and answers while somebody can be asked."""
        return (self.listener, self._desk.file) if self._desk.is_open else (self.listener,)

    @property
    def patience(self) -> int | None:
        """Return after how long to look whether the callers still live."""
        return _PATIENCE if self._held else None

    def tend(self, ready: Mapping[int, int]) -> None:
        """Take answers, then a call; forget those whose caller is gone."""
        if self._desk.file in ready:
            for number, answer in self._desk.answers():
                self._answered(number, answer)
        if not self._desk.is_open:
            self._refuse_all()
        super().tend(ready)
        self._forget_the_dead()

    def allows(self, operation: str, path: str) -> bool:
        """Tell whether a rule covers the path, or a person has just approved it for this call."""
        return (operation, path) in self._approved or super().allows(operation, path)

    def answer(self, name: str, call: Call) -> int | Descriptor | None:
        """Complete a call that the rules allow; hold one that they do not."""
        self._started = self._started or (name == "execve" and call.thread == self._desk.command)
        lacks = frozenset(self._lacks(name, call)) if self._started else frozenset()
        if not lacks or not self._desk.is_open or len(self._held) >= MAX_WAITING:
            return self._as_usual(name, call)
        self._held[call.id] = Held(name, call, lacks, set(lacks))
        for lack in lacks:
            self._ask(lack, call)
        return None

    def _lacks(self, name: str, call: Call) -> list[Lack]:
        return [
            (operation, act.target)
            for act in acts.file_acts(name, call)
            if act.operation not in _NEVER_HELD and not act.target.startswith("/proc/")
            for operation in self._grants.missing_for(act)
        ]

    def _as_usual(self, name: str, call: Call) -> int | Descriptor:
        """Do what the broker of a run without questions would do."""
        if name in METADATA_CALLS and not self._has_metadata:
            raise OSError(errno.EPERM, os.strerror(errno.EPERM))
        plain_open = name in {"open", "openat"} and not _creates(name, call)
        if name not in HANDLERS or plain_open:
            raise GoOn
        return HANDLERS[name](self, call)

    def _ask(self, lack: Lack, call: Call) -> None:
        if lack not in self._questions:  # the same question is asked once
            self._last += 1
            self._questions[lack] = self._last
            self._desk.ask(self._last, *lack, call.process())

    def _answered(self, number: int, answer: str) -> None:
        lack = next((each for each, own in self._questions.items() if own == number), None)
        if lack is None:
            return
        del self._questions[lack]
        waiting = [held for held in self._held.values() if lack in held.open]
        for place, held in enumerate(waiting):
            if answer == ONCE and place:
                self._ask(lack, held.call)  # the one answer was for another call
            elif answer in {YES, ONCE}:
                held.open.discard(lack)
                if not held.open:
                    self._finish(held, held.lacks)
            else:
                self._finish(held, frozenset())

    def _finish(self, held: Held, approved: frozenset[Lack]) -> None:
        del self._held[held.call.id]
        self._approved = approved
        try:
            carry_out = HELD_HANDLERS.get(held.name, HANDLERS.get(held.name, _go_on))
            self.settle(held.call, lambda: carry_out(self, held.call))
        finally:
            self._approved = frozenset()

    def _refuse_all(self) -> None:
        for held in tuple(self._held.values()):
            self._finish(held, frozenset())
        self._questions.clear()

    def _forget_the_dead(self) -> None:
        for held in tuple(self._held.values()):
            if not notification.is_waiting(self.listener, held.call):
                del self._held[held.call.id]
        wanted = {lack for held in self._held.values() for lack in held.open}
        for lack in tuple(self._questions):
            if lack not in wanted:
                self._desk.withdraw(self._questions.pop(lack))


def _creates(name: str, call: Call) -> bool:
    return bool(call.arguments[1 if name == "open" else 2] & os.O_CREAT)


def _go_on(_broker: Broker, _call: Call) -> int:
    raise GoOn
