"""The receipt: what was tried under the very restrictions, just before the command runs.

A forbidden act that succeeds, or an allowed one that fails, means that a layer does not hold: then
nothing runs. No act leaves a trace where it succeeds.
"""

from __future__ import annotations

import errno
import os

from . import kernel
from .errors import NotEnforced
from .explain import as_document
from .landlock import EXECUTE, READ_DIR, WRITE_FILE
from .record import Record
from .rules import beneath

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterator

    from .plan import Plan
else:
    import _socket as socket

FORMAT = 1
_DATA_RIGHTS = (READ_DIR, WRITE_FILE)
_OWN_FILE = "/proc/self/oom_score_adj"
_PROGRAMS = ("/usr/bin/true", "/usr/bin/env", "/usr/bin/id", "/usr/sbin/chroot", "/bin/busybox")
_REFUSALS = frozenset({"EACCES", "EPERM"})
ALLOWED, REFUSED = "allowed", "refused"


class Trial(Record):
    """One act, what should have come of it, and what did."""

    of: str
    act: str
    expected: str
    outcome: str

    @property
    def holds(self) -> bool:
        """Tell whether the outcome is the expected one; another errno than a refusal is neither."""
        return self.outcome in (_REFUSALS if self.expected == REFUSED else {ALLOWED})


class Candidates(Record):
    """What exists outside the rules, found before the restrictions made looking impossible."""

    program: int | None  # a descriptor of a program that no rule lets run
    folder: str | None
    file: str | None  # one that this process could write to, if nothing kept it from that


def look_around(plan: Plan) -> Candidates:
    """Choose what the forbidden acts will be tried on."""
    granted = [path for path, rights, _ in plan.paths if rights & EXECUTE]
    program = next((p for p in _PROGRAMS if os.path.exists(p) and not _within(p, granted)), None)
    read, modify = ([path for path, rights, _ in plan.paths if rights & r] for r in _DATA_RIGHTS)
    return Candidates(
        program=os.open(program, os.O_PATH | os.O_CLOEXEC) if program else None,
        folder=None if _within("/", read) else "/",
        file=None if _within(_OWN_FILE, modify) else _OWN_FILE,
    )


def _within(path: str, granted: list[str]) -> bool:
    real = os.path.realpath(path)
    return any(beneath(real, os.path.realpath(root)) for root in granted)


def attempt(plan: Plan, candidates: Candidates) -> tuple[Trial, ...]:
    """Try the acts; raise NotEnforced when one of them comes out otherwise than it must."""
    trials = tuple(_trials(plan, candidates))
    for trial in trials:
        if not trial.holds:
            raise NotEnforced(
                f"refused: {trial.act} should be {trial.expected}, and was {trial.outcome}"
            )
    return trials


def document(plan: Plan, trials: tuple[Trial, ...]) -> dict[str, object]:
    """Return the receipt as plain values."""
    uname = os.uname()
    return {
        "format": FORMAT,
        "kernel": {"release": uname.release, "machine": uname.machine},
        "landlock_errata": kernel.landlock_errata(),
        "plan": as_document(plan),
        "tried": [
            {"class": of, "act": act, "expected": expected, "outcome": outcome}
            for of, act, expected, outcome in trials
        ],
    }


def _trials(plan: Plan, candidates: Candidates) -> Iterator[Trial]:
    if plan.abi:
        yield from _file_trials(candidates)
    if plan.seccomp:
        yield from _call_trials(plan)


def _file_trials(candidates: Candidates) -> Iterator[Trial]:
    program, folder, file = candidates
    if folder:
        yield _refused("read", f"listing {folder}", lambda: _open(folder, os.O_RDONLY))
    if file and os.path.exists(file):
        yield _refused("modify", f"opening {file} to write", lambda: _open(file, os.O_WRONLY))
    if program is not None:
        trial = _refused("execute", "starting a program", lambda: kernel.check_execution(program))
        # Before Linux 6.14 the kernel cannot be asked without starting it.
        if trial.outcome != "EINVAL":
            yield trial
    yield _allowed("read", "opening /dev/null", lambda: _open("/dev/null", os.O_RDWR))


def _call_trials(plan: Plan) -> Iterator[Trial]:
    yield _refused("system calls", "unshare of nothing", lambda: kernel.unshare(0))
    yield _refused("network", "a packet socket", lambda: _socket(socket.AF_PACKET))
    inside = _allowed if "tcp" in plan.sockets else _refused
    yield inside("network", "a TCP socket", lambda: _socket(socket.AF_INET))
    yield _allowed("network", "a pair of unix sockets", socket.socketpair)
    if "metadata" not in plan.brokered:
        yield _refused("metadata", "changing a mode", lambda: os.fchmod(2**20, 0))


def _open(path: str, flags: int) -> None:
    os.close(os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY))


def _socket(family: int) -> None:
    socket.socket(family, socket.SOCK_STREAM, 0).close()


def _refused(of: str, act: str, do: Callable[[], object]) -> Trial:
    return Trial(of, act, REFUSED, _outcome(do))


def _allowed(of: str, act: str, do: Callable[[], object]) -> Trial:
    return Trial(of, act, ALLOWED, _outcome(do))


def _outcome(do: Callable[[], object]) -> str:
    try:
        do()
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, str(error))
    return ALLOWED
