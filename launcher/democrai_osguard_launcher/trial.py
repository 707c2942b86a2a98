"""One act that is tried under the restrictions: what should come of it, and what did."""

from __future__ import annotations

import errno

from .record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    Act = Callable[[], object]

ALLOWED, REFUSED = "allowed", "refused"
_REFUSALS = frozenset({"EACCES", "EPERM"})


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


def refused(of: str, act: str, do: Act) -> Trial:
    """Try an act that must be refused."""
    return Trial(of, act, REFUSED, _outcome(do))


def allowed(of: str, act: str, do: Act) -> Trial:
    """Try an act that must be allowed."""
    return Trial(of, act, ALLOWED, _outcome(do))


class Futile(Record):
    """An act that changes nothing even where it is allowed: the kernel itself has no use for it.

    The layer refuses with the errno `by`; the ones in `beyond` come from behind the layer.
    """

    of: str
    act: str
    do: Act
    beyond: Collection[str] = ()
    by: str = "EACCES"

    def reaches_the_kernel(self) -> bool:
        """Try the act where nothing should refuse it: if it is refused, it proves nothing."""
        return _outcome(self.do) in {ALLOWED, *self.beyond}

    def tried(self, expected: str) -> Iterator[Trial]:
        """Try the act; an errno that neither the layer nor the kernel gives is no trial."""
        outcome = _outcome(self.do)
        if outcome == ALLOWED or outcome in self.beyond:
            yield Trial(self.of, self.act, expected, ALLOWED)
        elif outcome == self.by:
            yield Trial(self.of, self.act, expected, outcome)


def _outcome(do: Act) -> str:
    try:
        do()
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, str(error))
    return ALLOWED
