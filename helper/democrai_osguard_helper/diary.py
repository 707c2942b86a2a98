"""What the daemon tells its operator: lines on the standard error, which a manager keeps.

Never waits for whoever reads them, and says a thing that goes on once in a while only: neither a
full pipe nor a fault that comes back every second may hold the daemon up.
"""

from __future__ import annotations

import contextlib
import os
import select
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

STDERR: Final = 2
AGAIN_SECONDS: Final = 60.0  # until the same line is written again
MAX_REMEMBERED: Final = 256
MAX_LINE: Final = 1000  # less than a pipe takes at once
PER_MINUTE: Final = 120  # lines of all kinds: users can cause some of them


class Diary:
    """Writes lines, with a limit."""

    def __init__(
        self, clock: Callable[[], float], write: Callable[[str], None] | None = None
    ) -> None:
        self._clock = clock
        self._write = write or _to_stderr
        self._said: dict[str, float] = {}
        self._minute, self._count = clock(), 0

    def say(self, text: str) -> None:
        """Write a line, unless it was written a moment ago or there are too many."""
        now = self._clock()
        last = self._said.get(text)
        if last is not None and now < last + AGAIN_SECONDS:
            return
        if now >= self._minute + AGAIN_SECONDS:
            self._minute, self._count = now, 0
        self._count += 1
        if self._count > PER_MINUTE:
            return
        self._remember(text, now)
        self._write(text)
        if self._count == PER_MINUTE:
            self._write("more of this is left out for a minute")

    def _remember(self, text: str, now: float) -> None:
        self._said.pop(text, None)
        self._said[text] = now
        if len(self._said) > MAX_REMEMBERED:
            del self._said[next(iter(self._said))]


def _to_stderr(text: str) -> None:
    line = "".join(filter(str.isprintable, text))[:MAX_LINE]
    with contextlib.suppress(OSError, ValueError):  # closed, or nobody reads it
        if select.select([], [STDERR], [], 0)[1]:
            os.write(STDERR, f"democrai-osguard-helper: {line}\n".encode(errors="replace"))
