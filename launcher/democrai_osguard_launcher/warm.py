"""The warm launcher: a small process that has everything imported and forks confined commands.

It is started by the process that wants to launch, with one end of a unix stream socket as its
standard input, and forks siblings of itself: each command is a child of that caller, to wait for,
to signal and to reap like any other. It ends when the caller does.

A request is four bytes of length, little-endian, and that much JSON:

    {"command": [...], "environment": {...}, "folder": "/..." or null, "access": [rule, ...],
     "subject": {"type", "name"} or null, "require": level, "limits": {name: number},
     "keep": [number, ...]}

With it come descriptors: standard input, output and error, a pipe for bad news, and one for each
number in `keep`. The answer is the eight bytes of the new process's number, 0 if there is none.
What kept it from becoming the command arrives at the pipe, as `code line`; the pipe closing without
a word means that it did.
"""

from __future__ import annotations

import fcntl
import gc
import json
import os
import select
import struct
import sys

from . import (
    access,
    confinement,
    enforcement,
    facts,
    kernel,
    limits,
    main,
    program,
    receipt,
    supervision,
)
from .environment import KEEP_ALL, child_environment
from .errors import LaunchError, UsageError
from .options import LEVELS, Options
from .plan import Facts, make_plan
from .record import Record
from .rules import make_subject

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    import socket
    from typing import NoReturn

    from .enforcement import Programs
    from .plan import Plan
    from .rules import Rule, Subject
else:
    import _signal as signal
    import _socket as socket

# Imported now, since a process that is confined may not be able to read modules any more.
PRELOADED = (confinement, supervision)
MAX_REQUEST = 1 << 20
MAX_DESCRIPTORS = 64
_LENGTH = struct.Struct("<I")
_STANDARD = 3
_ABOVE_KEPT = 512
_MOST_REMEMBERED = 1 << 20  # bytes of requests
_ACCESS = "DEMOCRAI_ACCESS"
_LANDLOCK_OFF, _SECCOMP_OFF = "--without-landlock", "--without-seccomp"
_KEYS = {"command", "environment", "folder", "access", "subject", "require", "limits", "keep"}
# A terminal sends these to everybody in the caller's group; the warm launcher goes with its caller.
_NOT_FOR_US = (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTSTP)


class Request(Record):
    """What the caller wants started."""

    command: tuple[str, ...]
    environment: dict[str, str]
    folder: str | None
    rules: tuple[Rule, ...]
    subject: Subject | None
    require: str
    limits: tuple[tuple[str, int], ...]
    keep: tuple[int, ...]


class Recipe(Record):
    """What follows from a request and from the facts: the same again when these are the same."""

    facts: Facts
    supervised: bool
    plan: Plan
    programs: Programs


class Job(Record):
    """A request that was found to be possible, and what was made ready for it."""

    request: Request
    path: str
    environment: dict[str, str]
    ready: confinement.Ready


class Kitchen:
    """Makes jobs of requests. It remembers what is pure, and looks at facts each time."""

    def __init__(self) -> None:
        self._parsed: dict[bytes, tuple[Request, dict[str, str]]] = {}
        self._recipes: dict[bytes, Recipe] = {}

    def make_job(self, text: bytes) -> Job:
        """Read the request and make everything ready; raise LaunchError when it cannot be."""
        request, environment = self._read(text)
        search_path = request.environment.get("PATH")
        command = program.find(_from(request.folder, request.command[0]), search_path)
        seen = _found(facts.gather(request.rules, command, search_path))
        recipe = self._recipe(text, request, seen)
        main.check_level(recipe.plan, request.require, quiet=True)
        restrictions = enforcement.prepare(recipe.plan, recipe.programs)
        candidates = receipt.look_around(recipe.plan, seen.objects)
        ready = confinement.Ready(restrictions, candidates, recipe.supervised)
        return Job(request, command.path, environment, ready)

    def _read(self, text: bytes) -> tuple[Request, dict[str, str]]:
        if text not in self._parsed:
            request = _parse(text)
            environment = child_environment(
                request.environment, request.rules, request.subject, keep=(KEEP_ALL,)
            )
            # The caller's own policy, which the rules may say in another way.
            environment[_ACCESS] = request.environment.get(_ACCESS, environment[_ACCESS])
            self._make_room(text)
            self._parsed[text] = request, environment
        return self._parsed[text]

    def _recipe(self, text: bytes, request: Request, seen: Facts) -> Recipe:
        recipe = self._recipes.get(text)
        if recipe is None or recipe.facts != seen:
            plan = make_plan(request.rules, seen)
            supervised = confinement.needs_supervisor(plan)
            programs = enforcement.assemble(plan, supervised=supervised)
            recipe = self._recipes[text] = Recipe(seen, supervised, plan, programs)
        return recipe

    def _make_room(self, text: bytes) -> None:
        # What is remembered is memory that each fork has to map: so little of it, and not for long.
        if sum(map(len, self._parsed)) + len(text) > _MOST_REMEMBERED:
            self._parsed.clear()
            self._recipes.clear()


def serve() -> NoReturn:
    """Answer the caller at standard input until it is gone."""
    kernel.close_range(_STANDARD)
    has_seccomp = facts.can_filter() and _SECCOMP_OFF not in sys.argv
    enforcement.enforce_always(has_seccomp=has_seccomp)
    gc.disable()  # a collection in a fork would copy every page that it looks at
    caller = os.pidfd_open(os.getppid())
    connection = socket.socket(fileno=os.dup(0))
    for number in _NOT_FOR_US:
        signal.signal(number, signal.SIG_IGN)
    kitchen = Kitchen()
    poll = select.poll()
    for descriptor in (caller, connection.fileno()):
        poll.register(descriptor, select.POLLIN)
    while caller not in dict(poll.poll()):
        received = _receive(connection)
        if received is None:
            break
        _answer(connection, kitchen, *received)
    sys.exit(0)


def _answer(
    connection: socket.socket, kitchen: Kitchen, text: bytes, descriptors: list[int]
) -> None:
    """Do here what need not be done in the command's own process: a fork pays for each page."""
    bad_news = fcntl.fcntl(descriptors.pop(_STANDARD), fcntl.F_DUPFD_CLOEXEC, _ABOVE_KEPT)
    child = 0
    try:
        job = kitchen.make_job(text)
        child = kernel.fork_sibling()
        if child == 0:
            _start(job, descriptors, bad_news)
    except Exception as error:  # noqa: BLE001 - whatever it was, nothing may run
        _tell(bad_news, error)
    finally:
        kernel.close_range(connection.fileno() + 1)  # all that this request has opened
    connection.sendall(struct.pack("<q", child))


def _found(host: Facts) -> Facts:
    """Return what the host has without what the caller's operator switched off."""
    landlock = _LANDLOCK_OFF not in sys.argv
    seccomp = host.seccomp and _SECCOMP_OFF not in sys.argv
    return Facts(host.abi if landlock else 0, seccomp, host.notifications and seccomp, *host[3:])


def _from(folder: str | None, name: str) -> str:
    return os.path.join(folder, name) if folder and "/" in name else name


def _start(job: Job, descriptors: list[int], bad_news: int) -> NoReturn:
    """Become the command, or say on the pipe why not."""
    request = job.request
    try:
        _place(request, descriptors)
        for number in _NOT_FOR_US:
            signal.signal(number, signal.SIG_DFL)
        if request.folder is not None:
            os.chdir(request.folder)
        keep = (*request.keep, bad_news)
        options = Options(command=request.command, keep_fds=keep, limits=request.limits)
        main.become(job.path, options, job.environment, job.ready)
    except Exception as error:  # noqa: BLE001 - whatever it was, nothing may run
        _tell(bad_news, error)
    os._exit(LaunchError.exit_code)


def _tell(pipe: int, error: Exception) -> None:
    code = error.exit_code if isinstance(error, LaunchError) else LaunchError.exit_code
    os.write(pipe, f"{code} {error}".encode(errors="surrogateescape"))


def _place(request: Request, descriptors: list[int]) -> None:
    """Put each descriptor where the command expects it."""
    places = (0, 1, 2, *request.keep)
    if len(descriptors) != len(places) or not all(0 <= place < _ABOVE_KEPT for place in places):
        raise UsageError(f"keep: one descriptor for each number below {_ABOVE_KEPT}")
    # First out of each other's way, then to their places, so that none overwrites another.
    moved = [fcntl.fcntl(each, fcntl.F_DUPFD_CLOEXEC, _ABOVE_KEPT) for each in descriptors]
    for descriptor, place in zip(moved, places, strict=True):
        os.dup2(descriptor, place)


def _parse(text: bytes) -> Request:
    fields = json.loads(text)
    if not isinstance(fields, dict) or fields.keys() != _KEYS:
        raise UsageError(f"request: expected an object of {', '.join(sorted(_KEYS))}")
    command, keep = fields["command"], fields["keep"]
    if not command or not all(isinstance(word, str) for word in command):
        raise UsageError("command: expected words")
    if fields["require"] not in LEVELS:
        raise UsageError(f"require: {fields['require']!r} is not a level")
    subject = fields["subject"]
    return Request(
        command=tuple(command),
        environment={str(name): str(value) for name, value in fields["environment"].items()},
        folder=fields["folder"],
        rules=access.parse_items(fields["access"], at="access"),
        subject=make_subject(subject["type"], subject["name"], at="subject") if subject else None,
        require=fields["require"],
        limits=tuple(limits.parse(f"{name}={value}") for name, value in fields["limits"].items()),
        keep=tuple(int(number) for number in keep),
    )


def _receive(connection: socket.socket) -> tuple[bytes, list[int]] | None:
    """Return the next request and its descriptors; None when the caller has hung up."""
    space = socket.CMSG_SPACE(4 * MAX_DESCRIPTORS)
    head, ancillary, _, _ = connection.recvmsg(_LENGTH.size, space)
    descriptors = [
        number
        for level, kind, data in ancillary
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS)
        for (number,) in struct.iter_unpack("i", data[: len(data) // 4 * 4])
    ]
    head += _exactly(connection, _LENGTH.size - len(head)) if head else b""
    if len(head) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack(head)
    text = _exactly(connection, length) if length <= MAX_REQUEST else b""
    if len(text) < length or len(descriptors) <= _STANDARD:
        return None  # out of step: hang up, and let the caller start another
    return text, descriptors


def _exactly(connection: socket.socket, size: int) -> bytes:
    pieces = b""
    while len(pieces) < size:
        piece = connection.recv(size - len(pieces))
        if not piece:
            break
        pieces += piece
    return pieces


if __name__ == "__main__":
    serve()
