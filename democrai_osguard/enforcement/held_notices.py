"""What a supervised run without a terminal says on its standard error: that it waits, and for whom.

Nothing depends on it: where a line cannot be written at once it is left out.
"""

from __future__ import annotations

import contextlib
import os
import select
import sys
from typing import TYPE_CHECKING

from democrai_osguard.errors import printable

if TYPE_CHECKING:
    from democrai_osguard.approvals.records import PendingRequest

_STANDARD_ERROR = 2
_MAX_LINE = select.PIPE_BUF  # bytes that a pipe takes as one piece
_CUT = "…\n".encode()


class Notices:
    """One line for each question, and one for each that nobody has answered in time."""

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout

    def waits(self, request: PendingRequest) -> None:
        """Say that a question is open, and how to answer it."""
        answer = (
            f"democrai-osguard requests approve --scope once {request.id}, or deny {request.id}"
        )
        _say(f"waits up to {self._timeout:g} s for an answer ({answer}): {wish(request)}")

    def unanswered(self, request: PendingRequest) -> None:
        """Say that the time of a question is over."""
        _say(f"nobody answered in time, refused ({request.id}): {wish(request)}")


def wish(request: PendingRequest) -> str:
    """Return who wants what, as one line that can steer nothing. It stands last in ours."""
    return printable(f"{' > '.join(map(str, request.chain))} wants: {request.rule}")


def _say(text: str) -> None:
    line = f"democrai-launch: {text}\n".encode(errors="replace")
    if len(line) > _MAX_LINE:
        whole = line[: _MAX_LINE - len(_CUT)].decode(errors="ignore")
        line = whole.encode() + _CUT
    if sys.stderr is None:
        return  # it was closed, and by now the descriptor may be a file of the store
    with contextlib.suppress(OSError):
        # Whoever reads it may be slow: an answer must not wait for that.
        if select.select([], [_STANDARD_ERROR], [], 0)[1]:
            os.write(_STANDARD_ERROR, line)
