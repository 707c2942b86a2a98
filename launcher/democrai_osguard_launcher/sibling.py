"""A confined sibling of the warm launcher, made by steps: no page is copied, no Python runs in it.

What `enforcement`, `receipt` and `confinement` do in a fork, in the same order, to the same end.
The list is written once for a request, and used again while what it was written for is true. A step
that ends otherwise than it must is the last one. `roots` has made the ruleset before.
"""

from __future__ import annotations

import errno
import os

from . import kernel, landlock
from .confinement import UMASK
from .enforcement import FIRST_OWN_DESCRIPTOR, OWN_FOLDER, gaps
from .errors import NotEnforced, NotExecutable, NotFound
from .limits import NAMES
from .receipt import Held, acts
from .record import Record
from .roots import RULESET, add_rule
from .steps import LARGEST, Draft
from .trial import HERE, Call, Later, check, text

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from .enforcement import Programs
    from .plan import Plan
    from .receipt import Candidates
    from .steps import Argument
    from .trial import Planned

    MadeFor = tuple["Errand", Plan, Candidates]
else:
    import _signal as signal

NEW_SESSION = -1
GROUP = "process group"
FIRST_FREE = RULESET  # of the descriptors that nothing is kept at
_MOVED = RULESET + 1
_DEFAULT = (0, 0, 0, 0)  # what is done with a signal
_NOT_IGNORED = (
    signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTSTP, signal.SIGPIPE, signal.SIGXFSZ,
)  # fmt: skip
_MASK_SIZE = 8
_BLOCK, _SET_MASK = 0, 2
_F_DUPFD_CLOEXEC = 1030
_RLIMIT_CORE = 4
_LARGEST_LIMIT = (1 << 64) - 1
_SECCOMP_SET_MODE_FILTER, _INSTRUCTION = 1, 8
_CLONE_SIBLING = 0x100 | 0x4000 | 0x8000 | 17  # VM, VFORK, PARENT, and SIGCHLD at its end


class Errand(Record):
    """A command that can be started by steps, and all that does not change with the host."""

    path: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    folder: str | None
    limits: tuple[tuple[str, int], ...]
    keep: tuple[int, ...]
    group: int | None = None  # the launcher's own, one to join as setpgid says it, or NEW_SESSION


def is_possible(plan: Plan, errand: Errand, *, supervised: bool) -> bool:
    """Tell whether steps can do it. Who asks others while it is confined needs a fork."""
    layers = plan.abi and plan.seccomp
    network = plan.endpoints or plan.ports or plan.by_address
    places = all(FIRST_OWN_DESCRIPTOR <= number < FIRST_FREE for number in errand.keep)
    limits = all(value <= _LARGEST_LIMIT for _, value in errand.limits)
    return bool(layers and places and limits and not supervised and not network)


class Sibling:
    """The steps of a process that becomes the command, or ends."""

    def __init__(self, made_for: MadeFor, programs: Programs, code: kernel.Code) -> None:
        errand, plan, candidates = self.made_for = made_for
        self._code = code
        self._draft = Draft()
        self._names: dict[int, str] = {}
        self._sources: dict[Later, int] = {}
        self._planned: dict[int, Planned] = {}
        self._mask = bytearray(_MASK_SIZE)
        kernel.call("rt_sigprocmask", _BLOCK, 0, self._mask, _MASK_SIZE)
        self._default_signals()
        self._moves = self._place((0, 1, 2, *errand.keep))
        self._join(errand.group)
        if errand.folder is not None:
            self._add(errand.folder, "chdir", text(errand.folder))
        self._restrict(plan, programs, candidates)
        self._close_others(errand.keep)
        self._limit(errand.limits)
        self._add("signals", "rt_sigprocmask", _SET_MASK, bytes(self._mask), 0, _MASK_SIZE)
        words: tuple[bytes | int, ...] = (*map(text, errand.command), 0)
        variables = tuple(_variables(errand.environment))
        self._exec = self._draft.add("execve", text(errand.path), words, variables, answers=0)
        self._steps = self._draft.seal(_CLONE_SIBLING)

    def start(self, descriptors: Sequence[int]) -> int:
        """Start the process and return its number, once it has become the command or has ended."""
        for step, descriptor in zip(self._moves, descriptors, strict=True):
            self._steps.set_argument(step, descriptor)
        self._steps.forget(self._exec)
        # A signal in between would be handled by two processes with one memory.
        kernel.call("rt_sigprocmask", _SET_MASK, b"\xff" * _MASK_SIZE, 0, _MASK_SIZE)
        try:
            child = self._steps.carry_out(self._code)
        finally:
            kernel.call("rt_sigprocmask", _SET_MASK, self._mask, 0, _MASK_SIZE)
        if child < 0:
            raise NotEnforced(f"clone: {os.strerror(-child)}")
        return child

    def check(self) -> None:
        """Raise LaunchError when the process that was started last has not become the command."""
        step = self._steps.reached
        code = self._steps.answer(step)
        if step == self._exec:
            self._check_start(code)
            return
        if step in self._planned:
            check(tuple(self._planned[step].judged(code)))
        why = os.strerror(code) if code else "it ended there"
        name = self._names.get(step, "the receipt")
        if name == GROUP:
            raise NotExecutable(f"{name}: {why}") from OSError(code, why)
        raise NotEnforced(f"{name}: {why}")

    def _check_start(self, code: int) -> None:
        name = self.made_for[0].command[0]
        if code:
            kind = NotFound if code == errno.ENOENT else NotExecutable
            raise kind(f"{name}: {os.strerror(code)}") from OSError(code, os.strerror(code))

    def _add(self, name: str, call: str, *arguments: Argument) -> int:
        step = self._draft.add(call, *arguments)
        self._names[step] = name
        return step

    def _default_signals(self) -> None:
        for number in _NOT_IGNORED:
            self._add("signals", "rt_sigaction", number, _DEFAULT, 0, _MASK_SIZE)

    def _place(self, places: Iterable[int]) -> list[int]:
        """Put descriptors first out of each other's way, then to their places."""
        targets = list(places)
        moves = [self._add("descriptors", "fcntl", 0, _F_DUPFD_CLOEXEC, _MOVED) for _ in targets]
        for move, place in zip(moves, targets, strict=True):
            self._draft.pass_on(move, self._add("descriptors", "dup3", 0, place, 0))
        return moves

    def _join(self, group: int | None) -> None:
        if group == NEW_SESSION:
            self._add(GROUP, "setsid")
        elif group is not None:
            self._add(GROUP, "setpgid", 0, group)

    def _restrict(self, plan: Plan, programs: Programs, candidates: Candidates) -> None:
        own = self._later("getpid")
        held = Held(*(self._held(path) for path in (candidates.program, candidates.command)))
        for path, rights, _ in plan.paths:
            if path == OWN_FOLDER and rights:
                self._names[add_rule(self._draft, path, rights)] = "landlock_add_rule"
        flags = landlock.entry_flags(plan.abi)
        self._add("landlock_restrict_self", "landlock_restrict_self", RULESET, flags)
        program = programs.arguments or b""
        header = (len(program) // _INSTRUCTION, program)
        self._add("seccomp", "seccomp", _SECCOMP_SET_MODE_FILTER, 0, header)
        for planned in acts(plan, candidates, held, os.getppid(), own):
            self._try(planned)

    def _later(self, call: str, *arguments: Argument) -> Later:
        later = Later()
        self._sources[later] = self._add(call, call, *arguments)
        return later

    def _held(self, path: str | None) -> Later | None:
        if path is None:
            return None
        return self._later("openat", HERE, text(path), os.O_PATH | os.O_CLOEXEC)

    def _try(self, planned: Planned) -> None:
        call = planned.act.do
        if not isinstance(call, Call):
            raise TypeError(f"{planned.act.act} is no system call")
        step = self._draft.add(call.name, *call.arguments, answers=_right_answers(planned))
        self._planned[step] = planned
        for place, argument in enumerate(call.arguments):
            if isinstance(argument, Later):
                self._draft.pass_on(self._sources[argument], step, place)

    def _close_others(self, keep: Iterable[int]) -> None:
        """Close what the trials have opened, too."""
        for first, last in gaps(keep):
            self._add("descriptors", "close_range", first, last, 0)

    def _limit(self, limits: Iterable[tuple[str, int]]) -> None:
        self._add("umask", "umask", UMASK)
        self._add("core dumps", "prlimit64", 0, _RLIMIT_CORE, (0, 0), 0)
        for name, value in limits:
            self._add(f"--limit {name}={value}", "prlimit64", 0, NAMES[name], (value, value), 0)


def _right_answers(planned: Planned) -> int:
    """Return the answers after which the next step may follow."""
    codes = (*range(LARGEST), errno.ENETUNREACH)  # the last one for all that are larger
    right = [all(trial.holds for trial in planned.judged(code)) for code in codes]
    return sum(1 << place for place, holds in enumerate(right) if holds)


def _variables(environment: Mapping[str, str]) -> Iterator[bytes | int]:
    for name, value in environment.items():
        if not name or "=" in name[1:]:
            raise ValueError("illegal environment variable name")
        yield text(f"{name}={value}")
    yield 0
