"""The warm launcher: a small process that has everything imported and starts confined commands.

It is started by the process that wants to launch, with one end of a unix stream socket as its
standard input, and makes siblings of itself, by steps or by a fork: each command is a child of that
caller, to wait for, to signal and to reap like any other. It ends when the caller does.

A request is four bytes of length, little-endian, and that much JSON:

    {"command": [...], "environment": {...}, "folder": "/..." or null, "access": [rule, ...],
     "subject": {"type", "name"} or null, "require": level, "limits": {name: number},
     "keep": [number, ...], "asks": {"seconds": number, "chain": ["kind:name", ...]} or null,
     "group": number or null, "program": "/..." or null, "called": "/..." or null}

The last four may be left out. A program is the file to start, where the caller has found it, and
called is the name by which; else the command is looked up. Dependencies are looked up in those
folders of PATH alone that only root changes: the variables are the command's, not the operator's.

A group is one to join or, with 0, to lead, as with setpgid; -1 is a
new session, and null the launcher's own, which is the caller's.

With it come descriptors: standard input, output and error, a pipe for bad news, and one for each
number in `keep`. The answer is the eight bytes of the new process's number, 0 if there is none.
What kept it from becoming the command arrives at the pipe, as `code errno line`, with an errno
where the kernel would not start it and 0 elsewhere; the pipe closing without a word means that it
did.
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
from .enforcement import close_others
from .environment import KEEP_ALL, child_environment
from .errors import LaunchError, NotExecutable, UsageError
from .options import LEVELS, Options
from .plan import Facts, make_plan, with_questions
from .record import Record
from .roots import RULESET, open_roots
from .rules import make_subject
from .seccomp import HELD
from .sibling import FIRST_FREE, GROUP, NEW_SESSION, Errand, Sibling, is_possible
from .steps import machine_code

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    import socket
    from typing import NoReturn

    from .enforcement import Programs
    from .plan import Plan
    from .roots import Roots
    from .rules import Rule, Subject
    from .sibling import MadeFor
else:
    import _signal as signal
    import _socket as socket

# Imported now, since a process that is confined may not be able to read modules any more.
PRELOADED = (confinement, supervision)
MAX_REQUEST = 1 << 24  # more than the kernel takes as arguments and variables
MAX_DESCRIPTORS = 64
_LENGTH = struct.Struct("<I")
_STANDARD = 3
_MOST_REMEMBERED = 1 << 20  # bytes of requests
_MOST_REQUESTS = 64  # what is known of one takes 100 kB
_ACCESS = "DEMOCRAI_ACCESS"
_OFF = {"landlock": "--without-landlock", "seccomp": "--without-seccomp"}
_STEPS_OFF = "--without-steps"  # what they would do happens in a fork
_OPTIONAL = {"asks", "group", "program", "called"}
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
    group: int | None = None
    found: tuple[str, str] | None = None  # the file to start, and its place by the command's name
    asks: tuple[str, ...] = ()  # for how many seconds, and the chain: what no rule allows waits


class Recipe(Record):
    """What follows from a request and from the facts: the same again when these are the same."""

    facts: Facts
    supervised: bool
    plan: Plan
    programs: Programs


class Looked(Record):
    """What was seen of the host, and whether steps are ready that see whether it is still so."""

    recipe: Recipe
    surroundings: receipt.Surroundings
    roots: Roots | None


class Job(Record):
    """A request that was found to be possible, and what was made ready for it."""

    request: Request
    errand: Errand
    ready: confinement.Ready | None  # for a fork
    by_steps: tuple[Sibling, Roots] | None  # or for what needs none


class Kitchen:
    """Makes jobs of requests. It remembers what is pure, and looks at facts each time."""

    def __init__(self, code: kernel.Code | None) -> None:
        self._code = code
        self._parsed: dict[bytes, tuple[Request, dict[str, str]]] = {}
        self._recipes: dict[bytes, Recipe] = {}
        self._looked: dict[bytes, Looked] = {}
        self._siblings: dict[bytes, Sibling] = {}

    def make_job(self, text: bytes) -> Job:
        """Read the request and make everything ready; raise LaunchError when it cannot be."""
        request, environment = self._read(text)
        command = _command(request)
        fixed = request.command, environment, request.folder, request.limits
        errand = Errand(command.path, *fixed, request.keep, request.group)
        looked = self._looked.get(text)
        if looked is None or not _is_still_so(looked, request, command):
            looked = self._look(text, request, command, errand)
        recipe, surroundings, roots = looked
        main.check_level(recipe.plan, request.require, quiet=True)
        candidates = surroundings.look_around()
        if roots:
            made_for = errand, recipe.plan, candidates
            sibling = self._sibling(text, made_for, recipe, roots)
            return Job(request, errand, None, (sibling, roots))
        restrictions = enforcement.prepare(recipe.plan, recipe.programs)
        ready = confinement.Ready(restrictions, candidates, recipe.supervised)
        return Job(request, errand, ready, None)

    def _look(
        self, text: bytes, request: Request, command: program.Program, errand: Errand
    ) -> Looked:
        """Look at the host anew, and have the roots open if steps can follow the recipe."""
        seen = _found(facts.gather(request.rules, command, _system_path(request)))
        recipe = self._recipe(text, request, seen)
        roots = None
        if self._code and is_possible(recipe.plan, errand, supervised=recipe.supervised):
            roots = open_roots(recipe.plan, seen, self._code)
        surroundings = receipt.Surroundings(recipe.plan, seen.objects)
        self._looked[text] = Looked(recipe, surroundings, roots)
        return self._looked[text]

    def _sibling(self, text: bytes, made_for: MadeFor, recipe: Recipe, roots: Roots) -> Sibling:
        sibling = self._siblings.get(text)
        if sibling is None or sibling.made_for != made_for:
            sibling = self._siblings[text] = Sibling(made_for, recipe.programs, roots.code)
        return sibling

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
        self._parsed[text] = self._parsed.pop(text)  # the newest is forgotten last
        return self._parsed[text]

    def _recipe(self, text: bytes, request: Request, seen: Facts) -> Recipe:
        recipe = self._recipes.get(text)
        if recipe is None or recipe.facts != seen:
            plan = make_plan(request.rules, seen)
            plan = with_questions(plan) if request.asks else plan
            supervised = bool(request.asks) or confinement.needs_supervisor(plan)
            also = HELD if request.asks else None
            programs = enforcement.assemble(plan, supervised=supervised, also=also)
            recipe = self._recipes[text] = Recipe(seen, supervised, plan, programs)
        return recipe

    def _make_room(self, text: bytes) -> None:
        # What is remembered is memory that each fork has to map: so little of it, and not for long.
        size = len(text) + sum(map(len, self._parsed))
        while self._parsed and (size > _MOST_REMEMBERED or len(self._parsed) >= _MOST_REQUESTS):
            oldest = next(iter(self._parsed))
            size -= len(oldest)
            for remembered in (self._parsed, self._recipes, self._looked, self._siblings):
                remembered.pop(oldest, None)


def _is_still_so(looked: Looked, request: Request, command: program.Program) -> bool:
    """Tell whether the host is as it was; the roots are open then."""
    seen = looked.recipe.facts
    if (seen.executables, seen.readable) != (command.executables, command.readable):
        return False
    if seen.programs != facts.find_programs(seen.programs, _system_path(request)):
        return False
    return looked.roots is not None and looked.roots.open()


def _command(request: Request) -> program.Program:
    path = request.environment.get("PATH")
    if request.found is not None:
        return program.find(request.found[0], path, request.found[1])
    return program.find(_from(request.folder, request.command[0]), path)


def _system_path(request: Request) -> str:
    """Return the folders of the command's PATH that dependencies are looked up in."""
    folders = request.environment.get("PATH", "").split(":")
    return ":".join(folder for folder in folders if folder in program.SYSTEM_FOLDERS)


def serve() -> NoReturn:
    """Answer the caller at standard input until it is gone."""
    kernel.close_range(_STANDARD)
    has_seccomp = facts.can_filter() and _OFF["seccomp"] not in sys.argv
    enforcement.enforce_always(has_seccomp=has_seccomp)
    gc.disable()  # a collection in a fork would copy every page that it looks at
    caller = os.pidfd_open(os.getppid())
    connection = socket.socket(fileno=os.dup(0))
    for number in _NOT_FOR_US:
        signal.signal(number, signal.SIG_IGN)
    kitchen = Kitchen(None if _STEPS_OFF in sys.argv else machine_code())
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
    bad_news = fcntl.fcntl(descriptors.pop(_STANDARD), fcntl.F_DUPFD_CLOEXEC, FIRST_FREE + 1)
    child = 0
    try:
        job = kitchen.make_job(text)
        _check_places(job.request, descriptors)
        if job.by_steps is not None:
            sibling, roots = job.by_steps
            child = sibling.start(descriptors)
            roots.serve(child)
            sibling.check()
        elif job.ready is not None and (child := kernel.fork_sibling()) == 0:
            _start(job, job.ready, descriptors, bad_news)
    except Exception as error:  # noqa: BLE001 - whatever it was, nothing may run
        _tell(bad_news, error)
    finally:
        # All that this request has opened, but for what may serve the next one.
        close_others({*range(_STANDARD, connection.fileno() + 1), RULESET})
    connection.sendall(struct.pack("<q", child))


def _found(host: Facts) -> Facts:
    """Return what the host has without what the caller's operator switched off."""
    off = tuple(layer for layer, word in _OFF.items() if word in sys.argv)
    seccomp = host.seccomp and "seccomp" not in off
    abi = 0 if "landlock" in off else host.abi
    # Which are off is the last field.
    return Facts(abi, seccomp, host.notifications and seccomp, *host[3:-1], off)


def _from(folder: str | None, name: str) -> str:
    return os.path.join(folder, name) if folder and "/" in name else name


def _start(job: Job, ready: confinement.Ready, descriptors: list[int], bad_news: int) -> NoReturn:
    """Become the command, or say on the pipe why not."""
    request = job.request
    try:
        _join(request.group)
        if request.asks:
            ready = _asking(request, ready, descriptors)
        ready = confinement.in_the_group(ready, is_alone=request.group == NEW_SESSION)
        _place(request, descriptors)
        for number in _NOT_FOR_US:
            signal.signal(number, signal.SIG_DFL)
        if request.folder is not None:
            os.chdir(request.folder)
        keep = (*request.keep, bad_news)
        options = Options(
            request.command, require=request.require, keep_fds=keep, limits=request.limits
        )
        main.become(job.errand.path, options, dict(job.errand.environment), ready)
    except Exception as error:  # noqa: BLE001 - whatever it was, nothing may run
        _tell(bad_news, error)
    os._exit(LaunchError.exit_code)


def _asking(
    request: Request, ready: confinement.Ready, descriptors: list[int]
) -> confinement.Ready:
    """Have somebody asked, under the name and in the session of the request."""
    from . import asking  # noqa: PLC0415 - most requests have nobody asked

    for each in descriptors:
        fcntl.fcntl(each, fcntl.F_SETFD, fcntl.FD_CLOEXEC)  # the command's own streams
    seconds, *chain = request.asks
    for name in asking.ORIGIN_VARIABLES:
        os.environ.pop(name, None)
        if name in request.environment:
            os.environ[name] = request.environment[name]
    options = Options(subject=request.subject, ask_timeout=seconds)
    desk = asking.start(options, (asking.NO_TERMINAL, *chain))
    return confinement.Ready(ready.restrictions, ready.candidates, ready.supervised, desk)


def _join(group: int | None) -> None:
    try:
        if group == NEW_SESSION:
            os.setsid()
        elif group is not None:
            os.setpgid(0, group)
    except OSError as error:
        raise NotExecutable(f"{GROUP}: {error.strerror}") from error


def _tell(pipe: int, error: Exception) -> None:
    code = error.exit_code if isinstance(error, LaunchError) else LaunchError.exit_code
    cause = error.__cause__
    number = cause.errno or 0 if isinstance(cause, OSError) else 0
    os.write(pipe, f"{code} {number} {error}".encode(errors="surrogateescape"))


def _check_places(request: Request, descriptors: list[int]) -> None:
    places = (0, 1, 2, *request.keep)
    if len(descriptors) != len(places) or not all(0 <= place < FIRST_FREE for place in places):
        raise UsageError(f"keep: one descriptor for each number below {FIRST_FREE}")


def _place(request: Request, descriptors: list[int]) -> None:
    """Put each descriptor where the command expects it."""
    # First out of each other's way, then to their places, so that none overwrites another.
    moved = [fcntl.fcntl(each, fcntl.F_DUPFD_CLOEXEC, FIRST_FREE) for each in descriptors]
    for descriptor, place in zip(moved, (0, 1, 2, *request.keep), strict=True):
        os.dup2(descriptor, place)


def _parse(text: bytes) -> Request:
    fields = json.loads(text)
    if not isinstance(fields, dict) or fields.keys() - _OPTIONAL != _KEYS:
        raise UsageError(f"request: expected an object of {', '.join(sorted(_KEYS))}")
    command, keep = fields["command"], fields["keep"]
    if not command or not all(isinstance(word, str) for word in command):
        raise UsageError("command: expected words")
    if fields["require"] not in LEVELS:
        raise UsageError(f"require: {fields['require']!r} is not a level")
    subject, asks, group = fields["subject"], fields.get("asks"), fields.get("group")
    if not isinstance(group, (int, type(None))) or (group is not None and group < NEW_SESSION):
        raise UsageError(f"group: {group!r} is no process group")
    return Request(
        command=tuple(command),
        environment={str(name): str(value) for name, value in fields["environment"].items()},
        folder=fields["folder"],
        rules=access.parse_items(fields["access"], at="access"),
        subject=make_subject(subject["type"], subject["name"], at="subject") if subject else None,
        require=fields["require"],
        limits=tuple(limits.parse(f"{name}={value}") for name, value in fields["limits"].items()),
        keep=tuple(int(number) for number in keep),
        group=group,
        found=_found_by_caller(fields.get("program"), fields.get("called")),
        asks=(str(float(asks["seconds"])), *map(str, asks["chain"])) if asks else (),
    )


def _found_by_caller(file: object, called: object) -> tuple[str, str] | None:
    if file is None:
        return None
    called = file if called is None else called
    for path in (file, called):
        if not isinstance(path, str) or not path.startswith("/"):
            raise UsageError(f"program: {path!r} is no path from the root")
    return str(file), str(called)


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
    pieces = bytearray()
    while len(pieces) < size:
        piece = connection.recv(size - len(pieces))
        if not piece:
            break
        pieces += piece
    return bytes(pieces)


if __name__ == "__main__":
    serve()
