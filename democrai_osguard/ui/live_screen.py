"""The live list of requests in a terminal: new ones appear, single keys decide.

It draws lines and takes keys; how lines are made safe is its caller's, who hands in `printable`.
"""

from __future__ import annotations

import os
import re
import select
import shutil
import sys
import termios
import threading
import time
import tty
from typing import TYPE_CHECKING

from democrai_osguard.approvals.records import label
from democrai_osguard.errors import OsGuardError, counted
from democrai_osguard.ui.wording import ago, sentence, shortened

if TYPE_CHECKING:
    from collections.abc import Callable

    from democrai_osguard.approvals.records import Operator, PendingRequest
    from democrai_osguard.approvals.service import ApprovalService

CALM_SECONDS = 0.5  # after the list has moved, keys that decide are ignored for so long
_SCOPES = {"s": "session", "p": "permanent", "d": "denied"}
_ONCE = "o"
_HELP = "↑ ↓ choose   o once   s session   p permanently   d deny   u undo   q quit"
_LINES = 3  # that a request takes at most
_UP, _DOWN = {"k", "\x1b[A"}, {"j", "\x1b[B"}
_KEY = re.compile(r"\x1b\[[A-Z]|.", re.DOTALL)  # an arrow is three characters
_PATIENCE = 1.0


class LiveScreen:
    """What is shown, and what a key does to it. Knows no terminal, so that tests can drive it."""

    def __init__(
        self,
        service: ApprovalService,
        operator: Operator,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._service = service
        self._operator = operator
        self._clock = clock
        self._requests: list[PendingRequest] = []
        self._chosen: str | None = None
        self._moved = float("-inf")
        self._last_decision: int | None = None
        self.words = ""
        self.refresh()

    def refresh(self) -> None:
        """Read the open requests again."""
        before = [request.id for request in self._requests]
        self._requests = sorted(
            self._service.list_requests(), key=lambda request: (request.first_seen, request.id)
        )
        now = [request.id for request in self._requests]
        if before != now:
            self._moved = self._clock()
        if self._chosen not in now:
            self._chosen = now[0] if now else None

    def press(self, key: str) -> bool:
        """Take a key; tell whether to go on."""
        if key in {"q", "\x03", "\x04"}:
            return False
        try:
            self._act(key)
        except OsGuardError as error:
            self.words = str(error)
        return True

    def lines(self, width: int, height: int, printable: Callable[[str], str]) -> list[str]:
        """Return what to draw; every line fits and is safe."""
        drawn = [counted(len(self._requests), "open request"), ""]
        room = max(1, (height - 7) // _LINES)
        place = self._place()
        start = max(0, place - room + 1)
        for request in self._requests[start : start + room]:
            mark = "▶" if request.id == self._chosen else " "
            session = "" if request.has_session else ", no session"
            resumes = ", resumes" if request.resumable else ""
            seen = ago(request.last_seen)
            drawn.append(
                f"{mark} {request.id}  {label(request.rule)}{session}{resumes}, {seen} ago"
            )
            drawn.append(f"    {sentence(request)}")
            if request.origin.task_id is not None:
                drawn.append(f"    {request.origin.task_id}{', which waits' * request.held}")
        hidden = len(self._requests) - min(len(self._requests), start + room)
        drawn += [f"  … and {hidden} more"] if hidden else []
        drawn += ["", self.words, _HELP]
        return [shortened(printable(line), max(width - 1, 20)) for line in drawn]

    def _place(self) -> int:
        places = [n for n, request in enumerate(self._requests) if request.id == self._chosen]
        return places[0] if places else 0

    def _act(self, key: str) -> None:
        if key in _UP | _DOWN and self._requests:
            step = self._place() + (1 if key in _DOWN else -1)
            self._chosen = self._requests[max(0, min(step, len(self._requests) - 1))].id
        elif key == "u" and self._last_decision is not None:
            self._service.undo(self._last_decision, self._operator)
            self._last_decision, self.words = None, "taken back"
            self.refresh()
        elif key in {*_SCOPES, _ONCE} and self._chosen is not None:
            self._decide(_SCOPES.get(key), self._chosen)

    def _decide(self, scope: str | None, request_id: str) -> None:
        if self._clock() - self._moved < CALM_SECONDS:
            self.words = "the list has just moved; look again"
            return
        if scope is None:
            outcome = self._service.approve_once(request_id, self._operator)
            self.words = f"{request_id}: once" if outcome.applied else outcome.words
            self.refresh()
            return
        outcome = self._service.decide(request_id, scope, self._operator)
        decision = outcome.decision
        self._last_decision = None if decision is None else decision.id
        self.words = f"{request_id}: {scope}; u takes it back" if outcome.applied else outcome.words
        self.refresh()


def run(service: ApprovalService, operator: Operator, printable: Callable[[str], str]) -> None:
    """Show the live list in this terminal until the operator leaves."""
    revision = service.store.revision()  # before the first look, so that no change is missed
    screen = LiveScreen(service, operator)
    hears, says = os.pipe()
    over = threading.Event()
    listener = threading.Thread(target=_listen, args=(service, revision, says, over), daemon=True)
    listener.start()
    keyboard = sys.stdin.fileno()
    before = termios.tcgetattr(keyboard)
    try:
        tty.setcbreak(keyboard)
        sys.stdout.write("\x1b[?1049h")
        _loop(screen, keyboard, hears, printable)
    finally:
        sys.stdout.write("\x1b[?1049l")
        sys.stdout.flush()
        termios.tcsetattr(keyboard, termios.TCSADRAIN, before)
        over.set()
        listener.join()
        os.close(hears)
        os.close(says)


def _loop(screen: LiveScreen, keyboard: int, hears: int, printable: Callable[[str], str]) -> None:
    going = True
    while going:
        size = shutil.get_terminal_size()
        text = "\r\n".join(screen.lines(size.columns, size.lines, printable))
        sys.stdout.write(f"\x1b[H\x1b[2J{text}")
        sys.stdout.flush()
        ready, _, _ = select.select([keyboard, hears], [], [], 10 * _PATIENCE)
        if hears in ready:
            os.read(hears, 4096)
            screen.refresh()
        if keyboard in ready:
            typed = _KEY.findall(os.read(keyboard, 64).decode("ascii", "replace"))
            going = all(screen.press(key) for key in typed)


def _listen(service: ApprovalService, revision: int, says: int, over: threading.Event) -> None:
    while not over.is_set():
        try:
            now = service.wait(revision, _PATIENCE)
        except OsGuardError:
            over.wait(_PATIENCE)  # the list itself will say what is wrong
            continue
        if now != revision:
            revision = now
            os.write(says, b".")
