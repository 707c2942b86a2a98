"""The person at the terminal of a supervised run: sees one question at a time, and answers it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from democrai_osguard.errors import OsGuardError

if TYPE_CHECKING:
    from democrai_osguard.approvals.records import Operator, PendingRequest
    from democrai_osguard.approvals.service import ApprovalService

_CHOICES = "[o]nce, for this [s]ession, [p]ermanently, [d]eny? "
_SCOPES = {"s": "session", "p": "permanent", "d": "denied"}
_MAX_LINE = 64


class Terminal:
    """A terminal, opened for itself: the command has its own session and cannot type there."""

    def __init__(self, descriptor: int, service: ApprovalService, operator: Operator) -> None:
        self._descriptor = descriptor
        self._service = service
        self._operator = operator
        self._shown: str | None = None

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

    def show(self, open_requests: list[str]) -> None:
        """Show the oldest open request, unless it stands there already."""
        current = open_requests[0] if open_requests else None
        if current is not None and current != self._shown:
            self._say(f"\n{_question(self._service.get(current))}\n{_CHOICES}")
        self._shown = current

    def take(self) -> None:
        """Read an answer, and decide what was shown."""
        word = os.read(self._descriptor, _MAX_LINE).decode(errors="replace").strip().lower()[:1]
        if self._shown is None:
            return
        try:
            if word == "o":
                self._service.approve_once(self._shown, self._operator)
            elif word in _SCOPES:
                self._service.decide(self._shown, _SCOPES[word], self._operator)
            else:
                self._say(_CHOICES)
        except OsGuardError as error:
            self._say(f"{error}\n{_CHOICES}")

    def _say(self, text: str) -> None:
        safe = "".join(char if char.isprintable() or char == "\n" else "?" for char in text)
        os.write(self._descriptor, safe.encode(errors="replace"))


def _question(request: PendingRequest) -> str:
    chain = " > ".join(map(str, request.chain))
    return f"{chain} wants: {request.rule}\n  {request.origin.task_id}"
