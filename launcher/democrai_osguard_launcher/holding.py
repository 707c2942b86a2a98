"""The broker of a supervised run: an act that no rule allows waits until a person has answered.

The call stays in the kernel meanwhile. After a yes it is looked up again from its arguments, and
carried out only on the very path that the person saw, and on the object that was there when they
were asked: what was changed in between leads to the same refusal as ever. Acts that only the kernel
can do for a process, such as starting a program, are not asked about.
"""

from __future__ import annotations

import errno
import os
from time import monotonic

from . import acts, landlock, notification, objects
from .asking import ONCE, YES
from .broker import Broker
from .brokered import Descriptor, GoOn
from .caller import real_path
from .grants import Grants
from .handlers import HANDLERS
from .held_calls import HELD_HANDLERS, can_be_done
from .record import Record
from .rules import beneath
from .seccomp import ADDRESS_CALLS, LOOKING_CALLS, METADATA_CALLS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from .asking import Desk
    from .broker import Roots
    from .brokered import Place
    from .caller import Call
    from .objects import Identity
    from .plan import Plan

    Lack = tuple[str, str]  # operation and path
    # The folder and the object that a question is about; None where it is about no path.
    Seen = tuple[Identity | None, Identity | None] | None

_NEVER_HELD = (acts.MOVE, "execute")
_ON_ITSELF = ("read", "modify", "execute")  # what an object brings to wherever it is moved
_ON_NAMES = ("create", "delete")  # and a folder also this, to what is beneath it
MAX_WAITING = 64  # calls; one more is refused without a question
_PATIENCE = 200  # milliseconds between two looks whether callers still live


class Held(Record):
    """A call that waits, and what it lacks an answer to."""

    name: str
    call: Call
    lacks: Mapping[Lack, str]  # with the folder that a rule would have to stand at, or ""
    open: set[Lack]
    seen: Mapping[Lack, Seen]


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
        self._until: dict[int, float] = {}  # when each is refused, if nobody has answered
        self._questions: dict[Lack, int] = {}
        self._last = 0
        self._looks_again = 0.0
        self._approved: Mapping[Lack, Seen] = {}
        self._started = False  # what comes before the exec are the launcher's own trials

    @property
    def descriptors(self) -> tuple[int, ...]:
        """Return what to wait for: calls, and answers while somebody can be asked."""
        return (self.listener, self._desk.file) if self._desk.is_open else (self.listener,)

    @property
    def patience(self) -> int | None:
        """Return after how long to look whether the callers still live."""
        return _PATIENCE if self._held or self._desk.is_behind else None

    def tend(self, ready: Mapping[int, int]) -> None:
        """Take answers, then a call; forget those whose caller is gone."""
        if self._desk.file in ready:
            for number, answer in self._desk.answers():
                self._answered(number, answer)
        if self._desk.is_behind:
            self._desk.flush()
        if not self._desk.is_open:
            self._refuse_all()
        super().tend(ready)
        self._refuse_the_late()
        self._forget_the_dead()

    def allows(self, operation: str, path: str) -> bool:
        """Tell whether a rule covers the path, or a person has just approved it for this call."""
        lack = operation, path
        is_approved = lack in self._approved and self._approved[lack] is None
        return is_approved or super().allows(operation, path)

    def allows_at(self, operation: str, at: Place) -> bool:
        """Tell whether a rule covers the name, or a person has approved what is there."""
        seen = self._approved.get((operation, at.path))
        if seen is None:
            return super().allows_at(operation, at)
        return seen == (objects.identity(at.folder), objects.identity_in(at.folder, at.name))

    def covers(self, operation: str, held: int) -> bool:
        """Tell whether a rule covers the object, or a person has approved this very one."""
        seen = self._approved.get((operation, real_path(held)))
        if seen is None:
            return super().covers(operation, held)
        return seen[1] == objects.identity(held)

    def gains(self, act: acts.Act) -> bool:
        """Tell whether a move or a link lets more be done to the object than where it was.

        The kernel's own judgement, by the folders, and that by the names which the broker opens:
        no approval of the two names says anything about what can then be read there.
        """
        if act.operation != acts.MOVE:
            return False
        if any(self._grants.missing_for(act)):
            return True
        kinds = (*_ON_ITSELF, *(_ON_NAMES if act.right & landlock.MAKE_REG else ()))
        return any(
            own in kinds
            and (beneath(act.leads_to, root) or beneath(root, act.leads_to))
            and not self._covers_at(own, act.target)
            for own, root in self._roots
        )

    def _covers_at(self, operation: str, path: str) -> bool:
        """Tell whether a rule covers what is at a path."""
        try:
            held = objects.opened_at(path)
        except OSError:
            return False
        try:
            return Broker.covers(self, operation, held)
        finally:
            os.close(held)

    def answer(self, name: str, call: Call) -> int | Descriptor | None:
        """Complete a call that the rules allow; hold one that they do not."""
        self._started = self._started or (name == "execve" and call.thread == self._desk.command)
        lacks = self._lacks(name, call) if self._started else {}
        if not lacks or not self._can_ask():
            return self._as_usual(name, call)
        self._held[call.id] = Held(name, call, lacks, set(lacks), _seen(lacks))
        self._until[call.id] = monotonic() + self._desk.patience
        for lack in lacks:
            self._ask(lack, call, lacks[lack])
        return None

    def _can_ask(self) -> bool:
        return self._desk.is_open and not self._desk.is_behind and len(self._held) < MAX_WAITING

    def _lacks(self, name: str, call: Call) -> dict[Lack, str]:
        if name in LOOKING_CALLS:  # programs look at too much to be asked about
            return {}
        if self.narrowing.concerns(call.thread):
            return {}
        if name in ADDRESS_CALLS:
            return dict.fromkeys(self.connections.lacks(name, call) if self.connections else (), "")
        found = acts.file_acts(name, call)
        if any(self.gains(act) for act in found):
            return {}  # the kernel refuses it, and so would we
        if not can_be_done(name, call, (act.target for act in found)):
            return {}
        return {
            (operation, act.target): act.folder
            for act in found
            if act.operation not in _NEVER_HELD and not act.target.startswith("/proc/")
            for operation in self._grants.missing_for(act)
        }

    def _as_usual(self, name: str, call: Call) -> int | Descriptor | None:
        """Do what the broker of a run without questions would do."""
        if name in METADATA_CALLS and not self._has_metadata:
            raise OSError(errno.EPERM, os.strerror(errno.EPERM))
        plain_open = name in {"open", "openat"} and not _creates(name, call)
        if name not in HANDLERS or plain_open:
            raise GoOn
        return super().answer(name, call)

    def _ask(self, lack: Lack, call: Call, folder: str) -> None:
        if lack not in self._questions:  # the same question is asked once
            self._last += 1
            self._questions[lack] = self._last
            self._desk.ask(self._last, *lack, call.process(), folder)

    def _answered(self, number: int, answer: str) -> None:
        lack = next((each for each, own in self._questions.items() if own == number), None)
        if lack is None:
            return
        del self._questions[lack]
        waiting = [held for held in self._held.values() if lack in held.open]
        for place, held in enumerate(waiting):
            if answer == ONCE and place:
                self._until[held.call.id] = monotonic() + self._desk.patience
                self._ask(lack, held.call, held.lacks[lack])  # the one answer was for another
            elif answer in {YES, ONCE}:
                held.open.discard(lack)
                if not held.open:
                    self._finish(held, held.seen)
            else:
                self._finish(held, {})

    def _finish(self, held: Held, approved: Mapping[Lack, Seen]) -> None:
        del self._held[held.call.id], self._until[held.call.id]
        self._approved = approved
        try:
            carry_out = HELD_HANDLERS.get(held.name, HANDLERS.get(held.name, _go_on))
            self.settle(held.call, lambda: carry_out(self, held.call))
        finally:
            self._approved = {}

    def _refuse_all(self) -> None:
        for held in tuple(self._held.values()):
            self._finish(held, {})
        self._questions.clear()

    def _refuse_the_late(self) -> None:
        """Say no where nobody has said anything: whoever is asked may hang."""
        now = monotonic()
        for held in tuple(self._held.values()):
            if now >= self._until[held.call.id]:
                self._finish(held, {})

    def _forget_the_dead(self) -> None:
        if monotonic() >= self._looks_again:  # not after each call of those who need not wait
            self._looks_again = monotonic() + _PATIENCE / 2000
            for held in tuple(self._held.values()):
                if not notification.is_waiting(self.listener, held.call):
                    del self._held[held.call.id], self._until[held.call.id]
        wanted = {lack for held in self._held.values() for lack in held.open}
        for lack in tuple(self._questions):
            if lack not in wanted:
                self._desk.withdraw(self._questions.pop(lack))


def _seen(lacks: Iterable[Lack]) -> dict[Lack, Seen]:
    """Note what is there now: a person says yes to that, and to nothing that comes later."""
    return {lack: None if lack[0] == "connect" else _seen_at(lack[1]) for lack in lacks}


def _seen_at(path: str) -> Seen:
    return objects.identity_at(os.path.dirname(path)), objects.identity_at(path)


def _creates(name: str, call: Call) -> bool:
    return bool(call.arguments[1 if name == "open" else 2] & os.O_CREAT)


def _go_on(_broker: Broker, _call: Call) -> int:
    raise GoOn
