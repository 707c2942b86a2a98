"""The way to whoever is asked: questions go out, answers come back, one line of JSON each.

The launcher decides nothing about a question. At the other end of the socket is a process of the
guard's side, started here or given by the caller; when it is gone every answer is no.

    {"id": 7, "operation": "read", "target": "/x", "resource_type": "filesystem",
     "pid": 12, "command": "cat /x"}              a question
    {"gone": 7}                                   nobody waits for it any more
    {"id": 7, "answer": "yes" | "once" | "no"}    an answer; `once` is for one call
"""

from __future__ import annotations

import json
import os
import sys

from . import seccomp
from .errors import NotEnforced, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator

    from .broker import Broker, Roots
    from .options import Options
    from .plan import Plan
else:
    import _socket as socket

YES, ONCE, NO = "yes", "once", "no"
_ASKER = "democrai_osguard.enforcement.asker"
_MAX_LINE = 1 << 16
_COMMAND_LENGTH = 200
_SUBJECT_VARIABLES = ("DEMOCRAI_NETWORK_SUBJECT_KIND", "DEMOCRAI_NETWORK_SUBJECT")


class Desk:
    """Our end of the socket."""

    waiting = seccomp.HELD

    def __init__(self, file: int) -> None:
        self.file = file
        self.is_open = True
        self.command = 0
        self._socket = socket.socket(fileno=file)
        self._unread = b""

    def begin(self, command: int) -> None:
        """Say which process becomes the command."""
        self.command = command

    def make_broker(self, plan: Plan, roots: Roots, listener: int) -> Broker:
        """Return the broker that asks here."""
        from .holding import HoldingBroker  # noqa: PLC0415 - it needs this module

        names = seccomp.brokered_numbers(os.uname().machine)
        return HoldingBroker(plan, roots, listener, names, self)

    def ask(self, number: int, operation: str, target: str, process: int) -> None:
        """Send a question; when that fails nobody is asked any more."""
        self._send(
            {
                "id": number, "operation": operation, "target": target,
                "resource_type": "filesystem", "pid": process, "command": _command_line(process),
            }
        )  # fmt: skip

    def withdraw(self, number: int) -> None:
        """Say that nobody waits for the answer any more."""
        self._send({"gone": number})

    def answers(self) -> Iterator[tuple[int, str]]:
        """Yield the answers that have arrived; anything else than an answer ends the asking."""
        try:
            piece = self._socket.recv(_MAX_LINE)
        except OSError:
            piece = b""
        self.is_open = self.is_open and bool(piece)
        *lines, self._unread = (self._unread + piece).split(b"\n")
        for line in lines:
            try:
                answer = json.loads(line)
                yield int(answer["id"]), str(answer["answer"])
            except (ValueError, KeyError, TypeError):
                self.is_open = False
                return

    def _send(self, message: dict[str, object]) -> None:
        try:
            text = json.dumps(message).encode() + b"\n"
            self._socket.sendall(text)
        except OSError:
            self.is_open = False


def start(options: Options) -> Desk:
    """Start the process that asks people, in the caller's name, or take the caller's own."""
    if options.ask_fd is not None:
        return Desk(os.dup(options.ask_fd))
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM, 0)
    words = [sys.executable, "-I", "-m", _ASKER, _subject(options), options.ask_timeout]
    try:
        os.posix_spawn(
            sys.executable,
            words,
            os.environ,
            file_actions=[(os.POSIX_SPAWN_DUP2, theirs.fileno(), 0)],
        )
    except OSError as error:
        raise NotEnforced(f"--supervised: {error.strerror}") from error
    theirs.close()
    desk = Desk(ours.detach())
    if not any(True for _ in desk.answers()):  # its first line says that it is there
        raise NotEnforced("--supervised: nobody can be asked")
    return desk


def _subject(options: Options) -> str:
    if options.subject is not None:
        return f"{options.subject.type}:{options.subject.name}"
    kind, name = (os.environ.get(variable) for variable in _SUBJECT_VARIABLES)
    if not kind or not name:
        raise UsageError("--supervised: for whom? --subject KIND:NAME says it")
    return f"{kind}:{name}"


def _command_line(process: int) -> str:
    try:
        with open(f"/proc/{process}/cmdline", "rb") as file:
            words = file.read(_COMMAND_LENGTH).rstrip(b"\0").split(b"\0")
    except OSError:
        return ""
    return " ".join(os.fsdecode(word) for word in words)
