"""The person at the terminal of a supervised run: sees one question at a time, and answers it.

The command may have that terminal too: it can change how keys become lines, and have the terminal
itself say things, such as its own name. Neither makes a whole word and the end of its line.
"""

from __future__ import annotations

import contextlib
import os
import termios
from typing import TYPE_CHECKING

from democrai_osguard.enforcement.held_notices import wish
from democrai_osguard.errors import OsGuardError, printable

if TYPE_CHECKING:
    from democrai_osguard.approvals.records import Operator, PendingRequest
    from democrai_osguard.approvals.service import ApprovalService

_CHOICES = "once, session, permanently or deny? "
_WITHOUT_SESSION = "once, permanently or deny? "
_SCOPES = {"session": "session", "permanently": "permanent", "deny": "denied"}
_MAX_LINE = 64


class Terminal:
    """A terminal, opened for itself: the command has its own session and cannot type there."""

    def __init__(self, descriptor: int, service: ApprovalService, operator: Operator) -> None:
        self._descriptor = descriptor
        self._service = service
        self._operator = operator
        self._shown: str | None = None
        self._choices = _CHOICES

    @classmethod
    def open(cls, service: ApprovalService, operator: Operator) -> Terminal | None:
        """Open the terminal that this process was started on, if there is one."""
        try:
            descriptor = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
        except OSError:
            return None
        return cls(descriptor, service, operator)

    def fileno(self) -> int:
        """Return what to wait for."""
        return self._descriptor

    def is_ours(self) -> bool:
        """Tell whether what is typed is for us: not while the run is in the background."""
        try:
            return os.tcgetpgrp(self._descriptor) == os.getpgrp()
        except OSError:
            return False

    def attend(self, open_requests: list[str], *, typed: bool) -> None:
        """Take what was typed, then show what is open."""
        if typed:
            self.take()
        self.show(open_requests)

    def show(self, open_requests: list[str]) -> None:
        """Show the oldest open request, unless it stands there already."""
        current = open_requests[0] if open_requests else None
        if current is not None and current != self._shown:
            self._forget_what_was_typed()
            request = self._service.get(current)
            self._choices = _CHOICES if request.has_session else _WITHOUT_SESSION
            self._say(f"\n{_question(request)}\n{self._choices}")
        self._shown = current

    def take(self) -> None:
        """Read an answer, and decide what was shown."""
        word = _word(os.read(self._descriptor, _MAX_LINE))
        if self._shown is None:
            return
        try:
            if word == "once":
                self._service.approve_once(self._shown, self._operator)
            elif word in _SCOPES:
                self._service.decide(self._shown, _SCOPES[word], self._operator)
            else:
                self._say(self._choices)
        except OsGuardError as error:
            self._say(f"{printable(str(error))}\n{self._choices}")

    def _forget_what_was_typed(self) -> None:
        """Drop what was typed before the question stood there: it is no answer to it."""
        with contextlib.suppress(OSError, termios.error):
            if self.is_ours():
                termios.tcflush(self._descriptor, termios.TCIFLUSH)

    def _say(self, text: str) -> None:
        os.write(self._descriptor, text.encode(errors="replace"))


def _word(line: bytes) -> str:
    """Return the one word of a line that was typed to its end; nothing of any other."""
    text, end, _ = line.decode(errors="replace").partition("\n")
    return text.strip(" ").lower() if end else ""


def _question(request: PendingRequest) -> str:
    """Return three lines, of which no name and no command line makes more."""
    known = (("session key", request.has_session), ("resumable", request.resumable))
    words = "; ".join(f"{name}: {'yes' if holds else 'no'}" for name, holds in known)
    return f"{wish(request)}\n  {printable(str(request.origin.task_id))}\n  {words}"
