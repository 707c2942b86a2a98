"""What a process holds: memory and descriptors, compared once it has settled.

Only memory of its own counts. A store is mapped, and what is resident of it grows with the file:
the kernel takes that back when it needs it.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import NamedTuple

_ROOM = 8 * 1024  # KiB: what an interpreter may still learn after its first rounds
_SECONDS = 30


class Footprint(NamedTuple):
    """Taken after a part's first round, when everything has been loaded."""

    memory: int  # KiB
    descriptors: int

    @classmethod
    def of(cls, pid: int) -> Footprint:
        """Look at a process."""
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
        line = next(line for line in status.splitlines() if line.startswith("RssAnon"))
        return cls(int(line.split()[1]), len(os.listdir(f"/proc/{pid}/fd")))

    def must_not_have_grown(self, pid: int, name: str) -> None:
        """Fail if the process holds more than it did, and goes on holding it."""
        until = time.monotonic() + _SECONDS
        while (now := Footprint.of(pid)).descriptors > self.descriptors:
            assert time.monotonic() < until, f"{name} leaks descriptors: {self} became {now}"
            time.sleep(0.1)
        assert now.memory <= self.memory + _ROOM, f"{name} leaks memory: {self} became {now}"
