"""The broker: completes in the supervising process what Landlock alone cannot tell apart.

A confined command stops in a call that the filter sends here. The broker reads the arguments once,
opens the object itself, judges where that object really is, and acts on what it opened. Where it
has nothing to say it lets the kernel go on, and then Landlock decides; it never does that with a
call that Landlock does not see.
"""

from __future__ import annotations

import errno
import os
import select

from . import notification
from .brokered import HANDLERS, Descriptor, GoOn
from .rules import FILESYSTEM, beneath

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from .caller import Call
    from .rules import Rule

    Roots = tuple[tuple[str, str], ...]  # operation and real path


def resolve_roots(rules: Iterable[Rule]) -> Roots:
    """Say where the rules really lead: to be asked before the command can move anything."""
    return tuple(
        (rule.operation, os.path.realpath(rule.target))
        for rule in rules
        if rule.resource_type == FILESYSTEM
    )


class Broker:
    """Judges and carries out the calls of one command."""

    def __init__(self, roots: Roots, listener: int, names: Mapping[int, str]) -> None:
        self._roots = roots
        self._identity = (os.geteuid(), os.getegid())
        self.listener = listener
        self._names = names
        os.umask(0)  # the caller's own is applied instead

    @property
    def descriptors(self) -> tuple[int, ...]:
        """Return what to wait for."""
        return (self.listener,)

    @property
    def patience(self) -> int | None:
        """Return how many milliseconds to wait at most; None is for ever."""
        return None

    def tend(self, ready: Mapping[int, int]) -> None:
        """Answer what is ready of the descriptors."""
        if ready.get(self.listener, 0) & select.POLLIN:
            self._serve_one()

    def settle(self, call: Call, carry_out: Callable[[], int | Descriptor | None]) -> None:
        """Carry a call out and answer it, whatever happens; None leaves it waiting."""
        try:
            answer = carry_out()
        except GoOn:
            notification.go_on(self.listener, call)
        except OSError as error:
            notification.refuse(self.listener, call, error.errno or errno.EPERM)
        except Exception:  # noqa: BLE001 - a caller that waits forever is worse than a refusal
            notification.refuse(self.listener, call, errno.EPERM)
        else:
            if answer is not None:
                self._deliver(call, answer)

    def answer(self, name: str, call: Call) -> int | Descriptor | None:
        """Complete the call; raise OSError to refuse it, GoOn to leave it to the kernel.

        None leaves it waiting, for somebody who will settle it.
        """
        return HANDLERS[name](self, call)

    def allows(self, operation: str, path: str) -> bool:
        """Tell whether a rule covers the path."""
        return any(own == operation and beneath(path, root) for own, root in self._roots)

    def umask_of(self, call: Call) -> int:
        """Return the caller's umask, just before acting for it.

        Raise EPERM when the caller is gone, or has become another user than the broker: what the
        broker does, it does with its own rights.
        """
        user, group, umask = call.identity()
        if (user, group) != self._identity or not notification.is_waiting(self.listener, call):
            raise OSError(errno.EPERM, os.strerror(errno.EPERM))
        return umask

    def _serve_one(self) -> None:
        call = notification.receive(self.listener)
        if call is not None:
            self.settle(call, lambda: self.answer(self._names[call.number], call))

    def _deliver(self, call: Call, answer: int | Descriptor) -> None:
        if isinstance(answer, int):
            notification.give_back(self.listener, call, answer)
            return
        number, close_on_exec = answer
        try:
            notification.hand_in(self.listener, call, number, close_on_exec=close_on_exec)
        finally:
            os.close(number)
