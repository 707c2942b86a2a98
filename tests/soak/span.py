"""The time of a soak: in its first half things are killed, in its second they have to last.

What is killed every few rounds never gets old enough to show a leak.
"""

from __future__ import annotations

import mmap
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random


class Span:
    """From now on, for a number of seconds."""

    def __init__(self, seconds: float) -> None:
        now = time.monotonic()
        self._half, self._end = now + seconds / 2, now + seconds
        self._cut_short = mmap.mmap(-1, 1)  # shared by every part: each is a fork

    def cut_short(self) -> None:
        """Let the time be up for every part: one of them has failed."""
        self._cut_short[0] = 1

    def is_calm(self) -> bool:
        """Tell whether nothing is killed any more."""
        return bool(self._cut_short[0]) or time.monotonic() >= self._half

    def is_over(self) -> bool:
        """Tell whether the time is up."""
        return bool(self._cut_short[0]) or time.monotonic() >= self._end

    def kills(self, chance: random.Random, one_in: int) -> bool:
        """Tell whether something is to be killed in this round."""
        return not self.is_calm() and chance.randrange(one_in) == 0
