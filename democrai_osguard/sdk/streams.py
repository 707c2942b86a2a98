"""The two ends of a child's standard streams, made as `asyncio.create_subprocess_exec` does."""

from __future__ import annotations

import contextlib
import os
import subprocess
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

Stream = int | IO[bytes] | IO[str] | None

DEVNULL, PIPE, STDOUT = subprocess.DEVNULL, subprocess.PIPE, subprocess.STDOUT
_STANDARD = (0, 1, 2)


@dataclass
class Ends:
    """The child's three descriptors, and ours of those that are pipes."""

    child: list[int] = field(default_factory=list)
    ours: list[int | None] = field(default_factory=list)
    passing: list[int] = field(default_factory=list)  # closed here once the child has them

    def hand_over(self, number: int) -> int | None:
        """Return our end of a pipe, which is the caller's to close from now on."""
        descriptor, self.ours[number] = self.ours[number], None
        return descriptor


@contextlib.contextmanager
def opened_ends(stdin: Stream, stdout: Stream, stderr: Stream) -> Iterator[Ends]:
    """Open what the child needs; afterwards close its ends, and ours that nobody took over."""
    ends = Ends()
    try:
        for number, stream in zip(_STANDARD, (stdin, stdout, stderr), strict=True):
            _open(ends, number, stream)
        yield ends
    finally:
        for descriptor in (*ends.passing, *ends.ours):
            if descriptor is not None:
                os.close(descriptor)


def _open(ends: Ends, number: int, stream: Stream) -> None:
    ours = None
    if stream is None:
        theirs = number
    elif stream == STDOUT and number == _STANDARD[2]:
        theirs = ends.child[1]
    elif stream == PIPE:
        reader, writer = os.pipe()
        theirs, ours = (reader, writer) if number == 0 else (writer, reader)
        ends.passing.append(theirs)
    elif stream == DEVNULL:
        theirs = os.open(os.devnull, os.O_RDWR)
        ends.passing.append(theirs)
    else:
        theirs = stream if isinstance(stream, int) else stream.fileno()
    if theirs < 0:
        raise ValueError(f"{stream!r} is no stream of a child process")
    ends.child.append(theirs)
    ends.ours.append(ours)
