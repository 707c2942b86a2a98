"""The receipt: what was tried under the very restrictions, just before the command runs.

A forbidden act that succeeds, or an allowed one that fails, means that a layer does not hold: then
nothing runs. No act leaves a trace where it succeeds.
"""

from __future__ import annotations

import os

from . import kernel
from .baseline import RUNTIME_PATHS
from .landlock import EXECUTE, MAKE_DIR, READ_DIR, REMOVE_DIR, REMOVE_FILE, WRITE_FILE
from .name_trials import is_outside, name_acts, objects_at, objects_with
from .record import Record
from .trial import ALLOWED, ANSWER, HERE, PAIR, REFUSED, Call, Futile, Plain, Planned, check, text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from .name_trials import Granted
    from .plan import Plan
    from .trial import Later, Trial

FORMAT = 1
_RUNTIME = frozenset(path for path, _, _ in RUNTIME_PATHS)
_OWN_FILE = "/proc/self/oom_score_adj"
_UNIX, _INET, _NETLINK, _STREAM, _RAW = 1, 2, 16, 1, 3
_GENERIC = 16  # of netlink: the kernel itself lets everybody have one
# First what every command may read, so that the refusal can only mean the starting.
_PROGRAMS = (
    "/lib/x86_64-linux-gnu/libc.so.6", "/lib/aarch64-linux-gnu/libc.so.6", "/lib64/libc.so.6",
    "/usr/bin/true", "/usr/bin/env", "/usr/bin/id", "/usr/sbin/chroot", "/bin/busybox",
)  # fmt: skip
_ABI_MOVES, _ABI_SIGNALS = 2, 6


class Candidates(Record):
    """What exists outside the rules, found before the restrictions made looking impossible."""

    program: str | None  # one that no rule lets run
    command: str | None  # the one that shall run
    folder: str | None
    file: str | None  # one that this process could write to, if nothing kept it from that
    names: tuple[Planned, ...]  # acts on names


class Held(Record):
    """Descriptors of the candidates that are programs, opened before the restrictions."""

    program: int | Later | None
    command: int | Later | None


class Surroundings:
    """Where a plan leads to, so that what is tried can be chosen outside of it, or inside."""

    def __init__(self, plan: Plan, seen: Mapping[str, tuple[int, int]]) -> None:
        """`seen` are the objects that are known already."""
        # None of the candidates is in the runtime's table, so that only the rest must be compared.
        self._own: Granted = [
            (path, rights, (seen[path],) if path in seen else objects_at(path))
            for path, rights, _ in plan.paths
            if path not in _RUNTIME
        ]
        self._running, self._listed, self._written = (
            objects_with(right, self._own) for right in (EXECUTE, READ_DIR, WRITE_FILE)
        )
        self._by_name = [
            each for each in self._own if each[1] & (MAKE_DIR | REMOVE_DIR | REMOVE_FILE)
        ]
        self._has_names = plan.abi >= _ABI_MOVES
        self._command = next((path for path, rights, _ in self._own if rights & EXECUTE), None)

    def look_around(self) -> Candidates:
        """Choose what the acts will be tried on, outside of the rules and inside."""
        present = (path for path in _PROGRAMS if os.access(path, os.X_OK))
        program = next((path for path in present if is_outside(path, self._running)), None)
        writable = os.path.exists(_OWN_FILE) and is_outside(_OWN_FILE, self._written)
        return Candidates(
            program=program,
            command=self._command,
            folder="/" if is_outside("/", self._listed) else None,
            file=_OWN_FILE if writable else None,
            names=tuple(name_acts(self._by_name)) if self._has_names else (),
        )


def hold(candidates: Candidates) -> Held:
    """Open the programs."""
    return Held(_opened(candidates.program), _opened(candidates.command))


def _opened(path: str | None) -> int | None:
    return os.open(path, os.O_PATH | os.O_CLOEXEC) if path else None


def attempt(
    plan: Plan, candidates: Candidates, held: Held, more: Iterable[Trial] = ()
) -> tuple[Trial, ...]:
    """Try the acts; raise NotEnforced when one of them comes out otherwise than it must."""
    planned = acts(plan, candidates, held, os.getppid(), os.getpid())
    trials = (*(trial for each in planned for trial in each.tried()), *more)
    check(trials)
    return trials


def as_document(plan: dict[str, object], trials: tuple[Trial, ...]) -> dict[str, object]:
    """Return the receipt as plain values, around those of the plan."""
    system = os.uname()
    return {
        "format": FORMAT,
        "kernel": {"release": system.release, "machine": system.machine},
        "landlock_errata": kernel.landlock_errata(),
        "plan": plan,
        "tried": [
            {"class": of, "act": act, "expected": expected, "outcome": outcome}
            for of, act, expected, outcome in trials
        ],
    }


def acts(
    plan: Plan, candidates: Candidates, held: Held, parent: int, own: int | Later
) -> Iterator[Planned]:
    """Yield what will be tried in a process of this number and of this parent."""
    if plan.abi:
        yield from _file_acts(candidates)
        if "look" in plan.brokered:
            yield from _look_acts(candidates.folder)
        yield from _execution_acts(held)
        yield from candidates.names
    if plan.abi >= _ABI_SIGNALS:
        yield from _signal_acts(parent, own)
    if plan.seccomp:
        yield from _call_acts(plan)


def _file_acts(candidates: Candidates) -> Iterator[Planned]:
    folder, file = candidates.folder, candidates.file
    if folder:
        yield _refused("read", f"listing {folder}", _open(folder, os.O_RDONLY))
    yield _allowed("read", "reading /dev/null", _open("/dev/null", os.O_RDONLY))
    if file:
        yield _refused("modify", f"opening {file} to write", _open(file, os.O_WRONLY))
    yield _allowed("modify", "writing to /dev/null", _open("/dev/null", os.O_WRONLY))


def _look_acts(folder: str | None) -> Iterator[Planned]:
    if folder:
        yield _refused("read", f"looking at {folder}", _stat(folder))
    yield _allowed("read", "looking at /dev/null", _stat("/dev/null"))


def _signal_acts(parent: int, own: int | Later) -> Iterator[Planned]:
    if parent:  # 0 where the parent lives in a namespace that this process does not see
        do = Call("kill", (parent, 0))
        yield Planned(REFUSED, Futile("signals", "asking for the parent", do, by="EPERM"))
    yield _allowed("signals", "asking for oneself", Call("kill", (own, 0)))


def _execution_acts(held: Held) -> Iterator[Planned]:
    # Before Linux 6.14 the kernel cannot be asked, only made to: EINVAL.
    if held.program is not None:
        act, do = "starting a program that no rule names", _start(held.program)
        yield Planned(REFUSED, Plain("execute", act, do, ("EINVAL",)))
    if held.command is not None:
        act, do = "starting the command", _start(held.command)
        yield Planned(ALLOWED, Plain("execute", act, do, ("EINVAL",)))


def _call_acts(plan: Plan) -> Iterator[Planned]:
    yield _refused("system calls", "unshare of nothing", Call("unshare", (0,)))
    again = Call("prctl", (kernel.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    yield _allowed("system calls", "no_new_privs once more", again)
    yield _refused("network", "a netlink socket", _socket(_NETLINK, _RAW, _GENERIC))
    tcp = _allowed if "tcp" in plan.sockets else _refused
    yield tcp("network", "a TCP socket", _socket(_INET))
    unix = _allowed if "unix" in plan.sockets else _refused
    yield unix("network", "a unix socket", _socket(_UNIX))
    pair = Call("socketpair", (_UNIX, _STREAM, 0, bytes(8)), PAIR)
    yield _allowed("network", "a pair of unix sockets", pair)
    if "metadata" not in plan.brokered:
        yield _refused("metadata", "changing a mode", Call("fchmod", (2**20, 0)))


def _refused(of: str, act: str, do: Call) -> Planned:
    return Planned(REFUSED, Plain(of, act, do))


def _allowed(of: str, act: str, do: Call) -> Planned:
    return Planned(ALLOWED, Plain(of, act, do))


def _open(path: str, flags: int) -> Call:
    how = flags | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
    return Call("openat", (HERE, text(path), how), ANSWER)


def _stat(path: str) -> Call:
    return Call("statx", (HERE, os.fsencode(path) + b"\0", 0, 0, bytes(256)))


def _start(file: int | Later) -> Call:
    flags = kernel.AT_EMPTY_PATH | kernel.AT_EXECVE_CHECK
    return Call("execveat", (file, b"\0", 0, 0, flags))


def _socket(family: int, kind: int = _STREAM, protocol: int = 0) -> Call:
    return Call("socket", (family, kind, protocol), ANSWER)
