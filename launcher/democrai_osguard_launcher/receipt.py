"""The receipt: what was tried under the very restrictions, just before the command runs.

A forbidden act that succeeds, or an allowed one that fails, means that a layer does not hold: then
nothing runs. No act leaves a trace where it succeeds.
"""

from __future__ import annotations

import os

from . import kernel
from .baseline import RUNTIME_PATHS
from .errors import NotEnforced
from .landlock import EXECUTE, READ_DIR, WRITE_FILE
from .name_trials import name_acts, objects_above, objects_with
from .record import Record
from .trial import REFUSED, Futile, allowed, refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from .plan import Plan
    from .trial import Trial

FORMAT = 1
_RUNTIME = frozenset(path for path, _, _ in RUNTIME_PATHS)
_OWN_FILE = "/proc/self/oom_score_adj"
_UNIX, _INET, _PACKET, _STREAM = 1, 2, 17, 1
# First what every command may read, so that the refusal can only mean the starting.
_PROGRAMS = (
    "/lib/x86_64-linux-gnu/libc.so.6", "/lib/aarch64-linux-gnu/libc.so.6", "/lib64/libc.so.6",
    "/usr/bin/true", "/usr/bin/env", "/usr/bin/id", "/usr/sbin/chroot", "/bin/busybox",
)  # fmt: skip
_ABI_MOVES, _ABI_SIGNALS = 2, 6


class Candidates(Record):
    """What exists outside the rules, found before the restrictions made looking impossible."""

    program: int | None  # a descriptor of a program that no rule lets run
    command: int | None  # a descriptor of the one that shall run
    folder: str | None
    file: str | None  # one that this process could write to, if nothing kept it from that
    names: tuple[tuple[str, Futile], ...]  # what is expected of acts on names, and the acts


def look_around(plan: Plan) -> Candidates:
    """Choose what the acts will be tried on: what exists, and what no rule opens or one does."""
    # None of the candidates is in the runtime's table, so that only the rest must be compared.
    own = [(path, rights) for path, rights, _ in plan.paths if path not in _RUNTIME]
    running, listed, written = (
        objects_with(right, own) for right in (EXECUTE, READ_DIR, WRITE_FILE)
    )
    present = (path for path in _PROGRAMS if os.access(path, os.X_OK))
    program = next((path for path in present if running.isdisjoint(objects_above(path))), None)
    command = next((path for path, rights in own if rights & EXECUTE), None)
    return Candidates(
        program=_hold(program),
        command=_hold(command),
        folder="/" if listed.isdisjoint(objects_above("/")) else None,
        file=_OWN_FILE if written.isdisjoint(objects_above(_OWN_FILE)) else None,
        names=tuple(name_acts(own)) if plan.abi >= _ABI_MOVES else (),
    )


def _hold(path: str | None) -> int | None:
    return os.open(path, os.O_PATH | os.O_CLOEXEC) if path else None


def attempt(plan: Plan, candidates: Candidates, more: Iterable[Trial] = ()) -> tuple[Trial, ...]:
    """Try the acts; raise NotEnforced when one of them comes out otherwise than it must."""
    trials = (*_trials(plan, candidates), *more)
    for trial in trials:
        if not trial.holds:
            raise NotEnforced(
                f"refused: {trial.act} should be {trial.expected}, and was {trial.outcome}"
            )
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


def _trials(plan: Plan, candidates: Candidates) -> Iterator[Trial]:
    if plan.abi:
        yield from _file_trials(candidates)
        yield from _execution_trials(candidates)
        for expected, act in candidates.names:
            yield from act.tried(expected)
    if plan.abi >= _ABI_SIGNALS:
        yield from _signal_trials()
    if plan.seccomp:
        yield from _call_trials(plan)


def _file_trials(candidates: Candidates) -> Iterator[Trial]:
    folder, file = candidates.folder, candidates.file
    if folder:
        yield refused("read", f"listing {folder}", lambda: _open(folder, os.O_RDONLY))
    yield allowed("read", "reading /dev/null", lambda: _open("/dev/null", os.O_RDONLY))
    if file and os.path.exists(file):
        yield refused("modify", f"opening {file} to write", lambda: _open(file, os.O_WRONLY))
    yield allowed("modify", "writing to /dev/null", lambda: _open("/dev/null", os.O_WRONLY))


def _signal_trials() -> Iterator[Trial]:
    outside = os.getppid()
    if outside:  # 0 where the parent lives in a namespace that this process does not see
        act = Futile("signals", "asking for the parent", lambda: os.kill(outside, 0), by="EPERM")
        yield from act.tried(REFUSED)
    yield allowed("signals", "asking for oneself", lambda: os.kill(os.getpid(), 0))


def _execution_trials(candidates: Candidates) -> Iterator[Trial]:
    if candidates.program is not None:
        act = "starting a program that no rule names"
        yield from _execution(refused, act, candidates.program)
    if candidates.command is not None:
        yield from _execution(allowed, "starting the command", candidates.command)


def _execution(
    expect: Callable[[str, str, Callable[[], object]], Trial], act: str, file: int
) -> Iterator[Trial]:
    trial = expect("execute", act, lambda: kernel.check_execution(file))
    if trial.outcome != "EINVAL":  # before Linux 6.14 the kernel cannot be asked, only made to
        yield trial


def _call_trials(plan: Plan) -> Iterator[Trial]:
    yield refused("system calls", "unshare of nothing", lambda: kernel.unshare(0))
    yield allowed("system calls", "no_new_privs once more", kernel.set_no_new_privs)
    yield refused("network", "a packet socket", lambda: _open_socket(_PACKET))
    tcp = allowed if "tcp" in plan.sockets else refused
    yield tcp("network", "a TCP socket", lambda: _open_socket(_INET))
    unix = allowed if "unix" in plan.sockets else refused
    yield unix("network", "a unix socket", lambda: _open_socket(_UNIX))
    yield allowed("network", "a pair of unix sockets", _open_pair)
    if "metadata" not in plan.brokered:
        yield refused("metadata", "changing a mode", lambda: os.fchmod(2**20, 0))


def _open(path: str, flags: int) -> None:
    os.close(os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY))


def _open_socket(family: int) -> None:
    os.close(kernel.open_socket(family, _STREAM))


def _open_pair() -> None:
    for end in kernel.open_socket_pair(_UNIX, _STREAM):
        os.close(end)
