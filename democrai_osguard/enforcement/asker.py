"""The process that asks people for a supervised run: `python -I -m … KIND:NAME SECONDS`.

Started by the launcher before anything is confined, with its end of a socket as standard input. It
ends when the launcher does. Where the run has a terminal, the person there can answer too.
"""

from __future__ import annotations

import getpass
import json
import os
import select
import socket
import sys
from typing import TYPE_CHECKING

from democrai_osguard.access import Subject
from democrai_osguard.approvals.opening import open_service
from democrai_osguard.approvals.records import Operator, Origin
from democrai_osguard.enforcement.held import NO, HeldDesk
from democrai_osguard.enforcement.held_terminal import Terminal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from democrai_osguard.approvals.service import ApprovalService

_LOOK = 0.1  # seconds between two looks at the store
_MAX_LINE = 1 << 16


def main(subject: str, timeout: str) -> None:
    """Ask until the launcher is gone."""
    connection = socket.socket(fileno=os.dup(0))
    service = open_service()
    serve(connection, service, Subject.parse(subject), float(timeout))
    service.close()


def serve(
    connection: socket.socket, service: ApprovalService, subject: Subject, timeout: float
) -> list[Mapping[str, object]]:
    """Ask for the run at the other end of the socket until it is over; return what was allowed."""
    desk = HeldDesk(service, subject, _origin(), timeout=timeout)
    terminal = Terminal.open(service, _operator())
    watched: list[socket.socket | Terminal] = [connection, *([terminal] if terminal else [])]
    questions: dict[int, Mapping[str, object]] = {}
    allowed: list[Mapping[str, object]] = []
    unread = b""
    connection.sendall(b'{"id": 0, "answer": "yes"}\n')  # somebody is here
    while True:
        ready, _, _ = select.select(watched, [], [], _LOOK)
        if connection in ready:
            piece = connection.recv(_MAX_LINE)
            if not piece:
                desk.close()
                return allowed
            *lines, unread = (unread + piece).split(b"\n")
            for message in map(json.loads, lines):
                questions[message.get("id", 0)] = message
                desk.take(message)
        if terminal and terminal in ready:
            terminal.take()
        for number, word in desk.answers():
            allowed += [questions.pop(number)] if word != NO else []
            connection.sendall(json.dumps({"id": number, "answer": word}).encode() + b"\n")
        if terminal:
            terminal.show(desk.open_requests())


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
