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

from . import notification, objects
from .brokered import Descriptor, GoOn
from .caller import Call, forget_memories, keep_own_descriptors_at_hand, real_path
from .enforcement import CAPABILITIES
from .handlers import HANDLERS
from .narrowing import Narrowing
from .rules import FILESYSTEM, beneath
from .seccomp import NAME_CALLS, STARTING_CALLS
from .standing import Standing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from .brokered import Place
    from .connections import Connections
    from .grants import Grants
    from .objects import Noted
    from .rules import Rule

    Roots = tuple[tuple[str, str], ...]  # operation and real path

_ACTING = sum(1 << number for number in CAPABILITIES)
_ON_NAMES = frozenset({"create", "delete"})


def resolve_roots(rules: Iterable[Rule]) -> Roots:
    """Say where the rules really lead: to be asked before the command can move anything."""
    return tuple(
        (rule.operation, place_of(rule)) for rule in rules if rule.resource_type == FILESYSTEM
    )


def place_of(rule: Rule) -> str:
    """Return where the rule stands; what acts on the name of a link is not about its other end."""
    if rule.operation in _ON_NAMES and os.path.islink(rule.target):
        folder, name = os.path.split(rule.target)
        if not os.path.isdir(rule.target):
            return os.path.join(os.path.realpath(folder), name)
    return os.path.realpath(rule.target)


def _of(roots: Roots, operation: str) -> list[str]:
    return [root for own, root in roots if own == operation]


class Broker:
    """Judges and carries out the calls of one command."""

    def __init__(self, roots: Roots, listener: int, names: Mapping[int, str]) -> None:
        self._roots = roots
        self._places = {own: frozenset(_of(roots, own)) for own, _ in roots}
        # A text that begins like this is beneath a rule of the operation.
        self._beginnings = {
            own: tuple(root.rstrip("/") + "/" for root in _of(roots, own)) for own, _ in roots
        }
        self.listener = listener
        self._names = names
        self.loaders: frozenset[tuple[int, int]] = frozenset()  # not to be started themselves
        self.noted: Noted = {}  # what was at the roots when the command started
        self.sight: Grants | None = None  # what may be looked at; None: everything
        self.connections: Connections | None = None  # where calls with an address wait
        # Ours is still that of the command; from here on the caller's own is applied instead.
        self.standing = Standing(os.umask(0))
        self.narrowing = Narrowing()
        notification.hurry(listener)
        keep_own_descriptors_at_hand()

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

    def settle(
        self, call: Call, carry_out: Callable[..., int | Descriptor | None], *arguments: object
    ) -> None:
        """Carry a call out and answer it, whatever happens; None leaves it waiting."""
        try:
            answer = carry_out(*arguments)
        except GoOn:
            notification.go_on(self.listener, call)
        except OSError as error:
            notification.refuse(self.listener, call, error.errno or errno.EPERM)
        except Exception:  # noqa: BLE001 - a caller that waits forever is worse than a refusal
            notification.refuse(self.listener, call, errno.EPERM)
        else:
            if answer is not None:
                self._deliver(call, answer)

    def settle_by_name(self, name: str, call: Call) -> None:
        """Answer a call as its name wants it."""
        self.settle(call, self.answer, name, call)

    def answer(self, name: str, call: Call) -> int | Descriptor | None:
        """Complete the call; raise OSError to refuse it, GoOn to leave it to the kernel.

        None leaves it waiting, for somebody who will settle it.
        """
        if self.narrowing.concerns(call.thread) and name in NAME_CALLS:
            raise GoOn  # all of the caller's layers are asked there
        return HANDLERS[name](self, call)

    def allows(self, operation: str, path: str) -> bool:
        """Tell whether a rule covers the path."""
        beginnings = self._beginnings.get(operation)
        return beginnings is not None and (
            path.startswith(beginnings) or path in self._places[operation]
        )

    def allows_at(self, operation: str, at: Place) -> bool:
        """Tell whether a rule covers a name in an open folder."""
        return self.allows(operation, at.path)

    def covers(self, operation: str, held: int) -> bool:
        """Tell whether a rule covers the open object: by its path, and by what the rule was for.

        The command may have put something else in the place of that, which the rule is not about.
        """
        path = real_path(held)
        return self.allows(operation, path) and any(
            own == operation and beneath(path, root) and objects.is_at(held, path, root, noted)
            for (own, root), noted in self.noted.items()
        )

    def umask_of(self, call: Call) -> int:
        """Return the caller's umask, just before acting for it.

        Raise EPERM when the caller is gone, has become another user than the broker, or has given
        up what the broker has: what the broker does, it does with its own rights.
        """
        umask = self.standing.mask_of(call.thread) if self.standing.is_ours else None
        if umask is None:
            umask = self._asked_umask(call)
        if not notification.is_waiting(self.listener, call):
            raise OSError(errno.EPERM, os.strerror(errno.EPERM))
        return umask

    def _asked_umask(self, call: Call) -> int:
        who, able, umask = call.identity()
        own, own_able, _ = Call(0, os.getpid(), 0, ()).identity()
        # What the broker alone has is to look into others, and acts on no file.
        if who != own or own_able & _ACTING & ~able:
            raise OSError(errno.EPERM, os.strerror(errno.EPERM))
        self.standing.learn(call.thread, umask)
        return umask

    def _serve_one(self) -> None:
        call = notification.receive(self.listener)
        if call is not None:
            name = self._names[call.number]
            self.settle(call, self._answer_in_time, name, call)
            if name in STARTING_CALLS:
                forget_memories()

    def _answer_in_time(self, name: str, call: Call) -> int | Descriptor | None:
        if self.connections is not None and self.connections.postpones(name, call):
            return None
        return self.answer(name, call)

    def _deliver(self, call: Call, answer: int | Descriptor) -> None:
        if isinstance(answer, int):
            notification.give_back(self.listener, call, answer)
            return
        number, close_on_exec = answer
        try:
            notification.hand_in(self.listener, call, number, close_on_exec=close_on_exec)
        finally:
            os.close(number)
