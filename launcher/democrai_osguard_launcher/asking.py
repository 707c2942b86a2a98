"""The way to whoever is asked: questions go out, answers come back, one line of JSON each.

The launcher decides nothing about a question. At the other end of the socket is a process of the
guard's side, started here or given by the caller; when it is gone every answer is no.

    {"id": 7, "operation": "read", "target": "/x", "resource_type": "filesystem",
     "pid": 12, "command": "cat /x"}              a question; "folder": where a rule must stand
    {"id": 8, "operation": "connect", "target": "host:443", "resource_type": "network", …}
    {"gone": 7}                                   nobody waits for it any more
    {"id": 7, "answer": "yes" | "once" | "no"}    an answer; `once` is for one call
"""

from __future__ import annotations

import json
import os
import sys

from . import seccomp
from .environment import CHAIN
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
NO_TERMINAL = "--no-terminal"
ORIGIN_VARIABLES = ("DEMOCRAI_USER_ID", "DEMOCRAI_ORGANIZATION_ID", "DEMOCRAI_SESSION_KEY")
_ASKER = "democrai_osguard.enforcement.asker"
_MAX_LINE = 1 << 16
_COMMAND_LENGTH = 200
_GRACE = 30.0  # seconds in which the process that asks must have said no by itself
_SUBJECT_VARIABLES = ("DEMOCRAI_NETWORK_SUBJECT_KIND", "DEMOCRAI_NETWORK_SUBJECT")


class Desk:
    """Our end of the socket."""

    waiting = seccomp.HELD

    def __init__(self, file: int, patience: float) -> None:
        self.file = file
        self.is_open = True
        self.command = 0
        self.patience = patience  # seconds: who has no answer by then is told no
        self._socket = socket.socket(fileno=file)
        self._unread = self._unsent = b""

    @property
    def is_behind(self) -> bool:
        """Tell whether what was sent is not even read, so that nothing more can be asked."""
        return bool(self._unsent)

    def begin(self, command: int) -> None:
        """Say which process becomes the command."""
        self.command = command

    def make_broker(self, plan: Plan, roots: Roots, listener: int) -> Broker:
        """Return the broker that asks here."""
        from .holding import HoldingBroker  # noqa: PLC0415 - it needs this module

        names = seccomp.brokered_numbers(os.uname().machine)
        return HoldingBroker(plan, roots, listener, names, self)

    def ask(self, number: int, operation: str, target: str, process: int, folder: str = "") -> None:
        """Send a question; when that fails nobody is asked any more."""
        self._send(
            {
                "id": number, "operation": operation, "target": target,
                "resource_type": "network" if operation == "connect" else "filesystem",
                "pid": process, "command": _command_line(process),
                **({"folder": folder} if folder else {}),
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

    def flush(self) -> None:
        """Send what there was no room for, as far as there is now; nobody waits for that."""
        try:
            sent = self._socket.send(self._unsent, socket.MSG_DONTWAIT)
            self._unsent = self._unsent[sent:]
        except BlockingIOError:
            return
        except OSError:
            self.is_open, self._unsent = False, b""

    def _send(self, message: dict[str, object]) -> None:
        self._unsent += json.dumps(message).encode() + b"\n"
        self.flush()


def start(options: Options, more: tuple[str, ...] = ()) -> Desk:
    """Start the process that asks people, in the caller's name, or take the caller's own.

    `more` are further words for it: `NO_TERMINAL`, and the chain of subjects.
    """
    if options.ask_fd is not None:
        return _given(options.ask_fd, float(options.ask_timeout))
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM, 0)
    subject = _subject(options)
    more = more or inherited_chain(subject)
    words = [sys.executable, "-I", "-m", _ASKER, subject, options.ask_timeout, *more]
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
    desk = Desk(ours.detach(), float(options.ask_timeout) + _GRACE)
    said = [word for _, word in desk.answers()]  # its first line says that it is there, or why not
    if said != [YES]:
        raise NotEnforced(": ".join(["--supervised: nobody can be asked", *said]))
    return desk


def _given(number: int, patience: float) -> Desk:
    try:
        return Desk(os.dup(number), patience)
    except OSError as error:
        raise UsageError(f"--ask-fd: {number} is not a socket") from error


def inherited_chain(subject: str) -> tuple[str, ...]:
    """Return through whom the run was started; nobody, where the variable is another subject's."""
    text = os.environ.get(CHAIN)
    try:
        chain = json.loads(text) if text else []
    except ValueError as error:
        raise UsageError(f"{CHAIN}: not JSON: {error}") from error
    if not isinstance(chain, list) or not all(isinstance(each, str) for each in chain):
        raise UsageError(f"{CHAIN}: expected a list of subjects")
    return tuple(chain) if chain and chain[-1] == subject else ()


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
