"""One act that is tried under the restrictions: what should come of it, and what did."""

from __future__ import annotations

import errno
import os

from . import kernel
from .errors import NotEnforced
from .record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator
    from typing import TypeAlias

    Do: TypeAlias = "Call | Callable[[], object]"

ALLOWED, REFUSED = "allowed", "refused"
ANSWER, PAIR = "answer", "pair"  # where a call leaves the descriptors that it opens
HERE = -100  # AT_FDCWD
_REFUSALS = frozenset({"EACCES", "EPERM"})


def text(of: str) -> bytes:
    """Return text as the kernel reads it."""
    if "\0" in of:
        raise ValueError("embedded null byte")
    return os.fsencode(of) + b"\0"


class Later:
    """A number that is not known before the process that uses it exists."""


class Call(Record):
    """One system call, which `steps` can write down as well as this process can make it."""

    name: str
    arguments: tuple[int | bytes | Later, ...]
    opens: str = ""

    def make(self) -> None:
        """Make the call and close what it has opened; raise OSError."""
        *passed, last = self.arguments
        pair = bytearray(last) if self.opens == PAIR else None  # type: ignore[arg-type] # its room
        answer = kernel.call(self.name, *passed, pair or last)  # type: ignore[arg-type] # or late
        if self.opens == ANSWER:
            os.close(answer)
        elif pair:
            for half in (pair[:4], pair[4:]):
                os.close(int.from_bytes(half, "little"))


class Trial(Record):
    """One act, what should have come of it, and what did."""

    of: str
    act: str
    expected: str
    outcome: str

    @property
    def holds(self) -> bool:
        """Tell whether the outcome is the expected one; another errno than a refusal is neither."""
        return self.outcome in (_REFUSALS if self.expected == REFUSED else {ALLOWED})


def refused(of: str, act: str, do: Do) -> Trial:
    """Try an act that must be refused."""
    return Trial(of, act, REFUSED, _outcome(do))


class Plain(Record):
    """An act whose outcome is the answer; none where the kernel says that it cannot be asked."""

    of: str
    act: str
    do: Do
    unasked: Collection[str] = ()

    def judged(self, expected: str, outcome: str) -> Iterator[Trial]:
        """Say what the outcome means."""
        if outcome not in self.unasked:
            yield Trial(self.of, self.act, expected, outcome)


class Futile(Record):
    """An act that changes nothing even where it is allowed: the kernel itself has no use for it.

    The layer refuses with the errno `by`; the ones in `beyond` come from behind the layer.
    """

    of: str
    act: str
    do: Do
    beyond: Collection[str] = ()
    by: str = "EACCES"

    def reaches_the_kernel(self) -> bool:
        """Try the act where nothing should refuse it: if it is refused, it proves nothing."""
        return _outcome(self.do) in {ALLOWED, *self.beyond}

    def judged(self, expected: str, outcome: str) -> Iterator[Trial]:
        """Say what the outcome means; what neither the layer nor the kernel answers is no trial."""
        if outcome == ALLOWED or outcome in self.beyond:
            yield Trial(self.of, self.act, expected, ALLOWED)
        elif outcome == self.by:
            yield Trial(self.of, self.act, expected, outcome)

    def tried(self, expected: str) -> Iterator[Trial]:
        """Try the act now."""
        yield from self.judged(expected, _outcome(self.do))


class Planned(Record):
    """An act, and what must come of it."""

    expected: str
    act: Plain | Futile

    def judged(self, code: int) -> Iterator[Trial]:
        """Say what it means when the act ends with this errno, 0 for none."""
        outcome = errno.errorcode.get(code, str(code)) if code else ALLOWED
        yield from self.act.judged(self.expected, outcome)

    def tried(self) -> Iterator[Trial]:
        """Try the act now."""
        yield from self.act.judged(self.expected, _outcome(self.act.do))


def check(trials: Collection[Trial]) -> None:
    """Raise NotEnforced when an act came out otherwise than it must."""
    for trial in trials:
        if not trial.holds:
            raise NotEnforced(
                f"refused: {trial.act} should be {trial.expected}, and was {trial.outcome}"
            )


def _outcome(do: Do) -> str:
    try:
        do.make() if isinstance(do, Call) else do()
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, str(error))
    return ALLOWED
