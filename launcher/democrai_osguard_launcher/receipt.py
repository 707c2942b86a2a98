"""The receipt: what was tried under the very restrictions, just before the command runs.

A forbidden act that succeeds, or an allowed one that fails, means that a layer does not hold: then
nothing runs. No act leaves a trace where it succeeds.
"""

from __future__ import annotations

import errno
import os

from . import kernel
from .baseline import RUNTIME_PATHS
from .errors import NotEnforced
from .landlock import EXECUTE, READ_DIR, WRITE_FILE
from .record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .plan import Plan

FORMAT = 1
_RUNTIME = frozenset(path for path, _, _ in RUNTIME_PATHS)
_OWN_FILE = "/proc/self/oom_score_adj"
_UNIX, _INET, _PACKET, _STREAM = 1, 2, 17, 1
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
    command: int | None  # a descriptor of the one that shall run
    folder: str | None
    file: str | None  # one that this process could write to, if nothing kept it from that


def look_around(plan: Plan) -> Candidates:
    """Choose what the forbidden acts will be tried on: something that exists and no rule opens."""
    # None of the candidates is in the runtime's table, so that only the rest must be compared.
    own = [(path, rights) for path, rights, _ in plan.paths if path not in _RUNTIME]
    running, listed, written = (_granted(own, right) for right in (EXECUTE, READ_DIR, WRITE_FILE))
    present = (path for path in _PROGRAMS if os.path.exists(path))
    program = next((path for path in present if running.isdisjoint(_above(path))), None)
    command = next((path for path, rights in own if rights & EXECUTE), None)
    return Candidates(
        program=_hold(program),
        command=_hold(command),
        folder="/" if listed.isdisjoint(_above("/")) else None,
        file=_OWN_FILE if written.isdisjoint(_above(_OWN_FILE)) else None,
    )


def _granted(paths: list[tuple[str, int]], right: int) -> set[tuple[int, int]]:
    """Return which objects carry the right, by device and number: links do not matter then."""
    return {found for path, rights in paths if rights & right for found in _object(path)}


def _above(path: str) -> set[tuple[int, int]]:
    """Return the object and all folders that it is in."""
    parts = os.path.realpath(path).split("/")
    ancestors = ("/".join(parts[:end]) or "/" for end in range(1, len(parts) + 1))
    return {found for ancestor in ancestors for found in _object(ancestor)}


def _object(path: str) -> Iterator[tuple[int, int]]:
    try:
        status = os.stat(path)
    except OSError:
        return
    yield status.st_dev, status.st_ino


def _hold(path: str | None) -> int | None:
    return os.open(path, os.O_PATH | os.O_CLOEXEC) if path else None


def attempt(plan: Plan, candidates: Candidates) -> tuple[Trial, ...]:
    """Try the acts; raise NotEnforced when one of them comes out otherwise than it must."""
    trials = tuple(_trials(plan, candidates))
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
    if plan.seccomp:
        yield from _call_trials(plan)


def _file_trials(candidates: Candidates) -> Iterator[Trial]:
    program, command, folder, file = candidates
    if folder:
        yield _refused("read", f"listing {folder}", lambda: _open(folder, os.O_RDONLY))
    yield _allowed("read", "reading /dev/null", lambda: _open("/dev/null", os.O_RDONLY))
    if file and os.path.exists(file):
        yield _refused("modify", f"opening {file} to write", lambda: _open(file, os.O_WRONLY))
    yield _allowed("modify", "writing to /dev/null", lambda: _open("/dev/null", os.O_WRONLY))
    if program is not None:
        yield from _execution(_refused, "starting a program that no rule names", program)
    if command is not None:
        yield from _execution(_allowed, "starting the command", command)


def _execution(
    expect: Callable[[str, str, Callable[[], object]], Trial], act: str, file: int
) -> Iterator[Trial]:
    trial = expect("execute", act, lambda: kernel.check_execution(file))
    if trial.outcome != "EINVAL":  # before Linux 6.14 the kernel cannot be asked, only made to
        yield trial


def _call_trials(plan: Plan) -> Iterator[Trial]:
    yield _refused("system calls", "unshare of nothing", lambda: kernel.unshare(0))
    yield _allowed("system calls", "no_new_privs once more", kernel.set_no_new_privs)
    yield _refused("network", "a packet socket", lambda: _open_socket(_PACKET))
    tcp = _allowed if "tcp" in plan.sockets else _refused
    yield tcp("network", "a TCP socket", lambda: _open_socket(_INET))
    unix = _allowed if "unix" in plan.sockets else _refused
    yield unix("network", "a unix socket", lambda: _open_socket(_UNIX))
    yield _allowed("network", "a pair of unix sockets", _open_pair)
    if "metadata" not in plan.brokered:
        yield _refused("metadata", "changing a mode", lambda: os.fchmod(2**20, 0))


def _open(path: str, flags: int) -> None:
    os.close(os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY))


def _open_socket(family: int) -> None:
    os.close(kernel.open_socket(family, _STREAM))


def _open_pair() -> None:
    for end in kernel.open_socket_pair(_UNIX, _STREAM):
        os.close(end)


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
