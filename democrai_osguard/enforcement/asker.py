"""The process that asks people for a supervised run.

    python -I -m democrai_osguard.enforcement.asker KIND:NAME SECONDS [--no-terminal] [CHAIN …]

Started by the launcher before anything is confined, with its end of a socket as standard input. It
ends when the launcher does. Where the run has a terminal, the person there can answer too; where it
has none, the run's standard error says what waits.
"""

from __future__ import annotations

import getpass
import json
import os
import select
import signal
import socket
import sys
from typing import TYPE_CHECKING

from democrai_osguard.access import Subject
from democrai_osguard.approvals.opening import open_service
from democrai_osguard.approvals.records import Operator, Origin
from democrai_osguard.enforcement.held import NO, YES, HeldDesk
from democrai_osguard.enforcement.held_notices import Notices
from democrai_osguard.enforcement.held_terminal import Terminal
from democrai_osguard.errors import OsGuardError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from democrai_osguard.approvals.service import ApprovalService

_LOOK = 0.1  # seconds between two looks at the store
_MAX_LINE = 1 << 16
_MEANING = ("resource_type", "operation", "target", "folder")
_NO_TERMINAL = "--no-terminal"
_NOT_FOR_US = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP, signal.SIGTTOU)


def main(subject: str, timeout: str, *more: str) -> None:
    """Ask until the launcher is gone."""
    # What a terminal sends to the command is not for us: we go with the launcher, and no question
    # stays behind.
    for number in _NOT_FOR_US:
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    connection = socket.socket(fileno=os.dup(0))
    try:
        service = open_service()
    except (OsGuardError, OSError) as error:
        _say(connection, 0, str(error))  # the launcher says it, and starts nothing
        return
    chain = tuple(Subject.parse(each) for each in more if each != _NO_TERMINAL)
    is_own = _NO_TERMINAL not in more  # else it is an application's, which says things itself
    terminal = Terminal.open(service, _operator()) if is_own else None
    notices = Notices(float(timeout)) if is_own and terminal is None else None
    desk = HeldDesk(
        service, Subject.parse(subject), _origin(),
        timeout=float(timeout), chain=chain, notices=notices,
    )  # fmt: skip
    attend(connection, desk, terminal)
    service.close()


def serve(
    connection: socket.socket, service: ApprovalService, subject: Subject, timeout: float
) -> list[Mapping[str, object]]:
    """Ask for the run at the other end of the socket until it is over; return what was allowed."""
    desk = HeldDesk(service, subject, _origin(), timeout=timeout)
    return attend(connection, desk, Terminal.open(service, _operator()))


class Questions:
    """What was asked and is open, and what was allowed: each thing once, however often asked."""

    def __init__(self) -> None:
        self._open: dict[int, Mapping[str, object]] = {}
        self._allowed: dict[tuple[object, ...], Mapping[str, object]] = {}

    def take(self, message: Mapping[str, object]) -> None:
        """Note a question, or that nobody waits for one any more."""
        if "gone" in message:
            self._open.pop(int(str(message["gone"])), None)
        else:
            self._open[int(str(message["id"]))] = message

    def answered(self, number: int, word: str) -> None:
        """Note the answer to a question."""
        question = self._open.pop(number)
        if word != NO:
            self._allowed.setdefault(tuple(map(question.get, _MEANING)), question)

    def allowed(self) -> list[Mapping[str, object]]:
        """Return the questions to which the answer was yes."""
        return list(self._allowed.values())


def attend(
    connection: socket.socket, desk: HeldDesk, terminal: Terminal | None
) -> list[Mapping[str, object]]:
    """Carry questions to the desk and answers back, until the other end is gone."""
    questions = Questions()
    try:
        _carry(connection, desk, terminal, questions)
    except ConnectionError:
        pass  # it has ended in the middle of something
    finally:
        desk.close()  # whoever asked is gone, and so are the questions
    return questions.allowed()


def _carry(
    connection: socket.socket, desk: HeldDesk, terminal: Terminal | None, questions: Questions
) -> None:
    unread = b""
    _say(connection, 0, YES)  # somebody is here
    while True:
        heard = terminal is not None and terminal.is_ours()
        watched = [connection.fileno(), *([terminal.fileno()] if terminal and heard else [])]
        ready, _, _ = select.select(watched, [], [], _LOOK)
        if connection.fileno() in ready:
            piece = connection.recv(_MAX_LINE)
            if not piece:
                return
            *lines, unread = (unread + piece).split(b"\n")
            for message in map(json.loads, lines):
                questions.take(message)
                desk.take(message)
        for number, word in desk.answers():
            questions.answered(number, word)
            _say(connection, number, word)
        if terminal:
            terminal.attend(desk.open_requests(), typed=terminal.fileno() in ready)


def _say(connection: socket.socket, number: int, word: str) -> None:
    connection.sendall(json.dumps({"id": number, "answer": word}).encode() + b"\n")


def _origin() -> Origin:
    own = os.environ.get
    return Origin(
        own("DEMOCRAI_USER_ID"), own("DEMOCRAI_ORGANIZATION_ID"), own("DEMOCRAI_SESSION_KEY")
    )


def _operator() -> Operator:
    try:
        name = getpass.getuser()
    except (KeyError, OSError):
        name = str(os.getuid())
    return Operator(name, super_role=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
