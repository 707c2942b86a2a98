"""One row of the report: a technique, and what became of it under each layer and each peer."""

from __future__ import annotations

import errno
import signal
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

ALLOWED = "allowed"
OWN = "own"  # it succeeds, in a namespace of the sandbox's own, where it reaches nothing outside
UNTRIED = "not tried"  # how a verdict begins that says nothing about the layer
TOGETHER = "together"  # every layer of the launcher, or of the helper, at once


@dataclass(frozen=True)
class Row:
    """What was seen. A layer or peer that is not named was not tried with this technique."""

    suite: str
    name: str
    who: str  # root or user: the weakest who can do it unconfined
    consequence: str  # what it does unconfined
    free: str
    layers: Mapping[str, str] = field(default_factory=dict)
    peers: Mapping[str, str] = field(default_factory=dict)

    @property
    def shown(self) -> bool:
        """Tell whether the technique works here unconfined: else nothing can be learnt from it."""
        return self.free == ALLOWED

    def document(self) -> dict[str, Any]:
        """Return the row as plain values."""
        return asdict(self)


def name_of(error: BaseException) -> str:
    """Return what stopped a technique, in one word where there is one."""
    code = getattr(error, "code", None)
    if isinstance(code, str):
        return code
    if isinstance(error, OSError) and error.errno:
        return errno.errorcode.get(error.errno, f"error {error.errno}")
    return type(error).__name__


def name_of_end(status: int) -> str:
    """Return how a process ended that said nothing."""
    number = -status if status < 0 else status - 128
    try:
        return signal.Signals(number).name
    except ValueError:
        return "ended"
