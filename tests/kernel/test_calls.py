"""Every line of the list of system calls against the real kernel, with and without the filter.

Each call is made in a fork of its own, with arguments that mean nothing: what the kernel says to
them is the control.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from democrai_osguard_launcher import kernel, seccomp, stored_programs

if TYPE_CHECKING:
    from collections.abc import Callable

pyseccomp = pytest.importorskip("pyseccomp")
pytestmark = pytest.mark.needs("seccomp", "root")

POLICY = json.loads(Path(seccomp.__file__).with_name("seccomp_policy.json").read_text())
NOBODY = 65534
NOTHING = (-1,) * 6
# These do something whatever their arguments are, or never come back to say how it went.
NOT_CALLED = {
    "exit": "ends", "exit_group": "ends", "pause": "waits", "rt_sigreturn": "needs a signal",
    "vfork": "shares the memory of this test", "vhangup": "has no arguments to be wrong",
}  # fmt: skip
# Those that would mean everybody, or that the kernel itself answers with the filter's own errno.
ARGUMENTS: dict[str, tuple[int, ...]] = {
    "kill": (0, 0),
    "futex": (0, 1),  # to wake nobody: EFAULT
    "modify_ldt": (0,),
}
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.argtypes = [ctypes.c_long] * 7
libc.syscall.restype = ctypes.c_long


def calls(section: str) -> list[str]:
    """Return the calls of a section that exist on this machine and can be made."""
    listed = [call for line in POLICY[section] for call in line["calls"]]
    return [call for call in listed if call not in NOT_CALLED and number_of(call) >= 0]


def number_of(call: str) -> int:
    return int(pyseccomp.resolve_syscall(pyseccomp.system_arch(), call))


def outcome(number: int, arguments: tuple[int, ...], before: Callable[[], object]) -> str:
    """Make the call in a fork, after `before`; return its errno, `done`, or how the fork died."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.setsid()
        before()
        own = os.getpid()
        result = libc.syscall(number, *(*arguments, *NOTHING)[:6])
        code = ctypes.get_errno()
        if os.getpid() == own:  # a call that forks comes back twice
            os.write(writer, (errno.errorcode[code] if result == -1 else "done").encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        said = pipe.read()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return said or f"died: {status}"


def enter() -> None:
    kernel.set_no_new_privs()
    kernel.load_filter(stored_programs.call_program(os.uname().machine))


def both(call: str) -> tuple[str, str]:
    number, arguments = number_of(call), ARGUMENTS.get(call, NOTHING)
    return outcome(number, arguments, enter), outcome(number, arguments, lambda: None)


def test_what_is_allowed_is_answered_as_without_the_filter() -> None:
    for call in calls("allow"):
        filtered, free = both(call)
        assert filtered == free, call


def test_what_is_refused_is_refused_by_the_filter_alone() -> None:
    for call in calls("refuse"):
        filtered, free = both(call)
        assert filtered == "EPERM", call
        assert free != "EPERM", call


@pytest.mark.parametrize("number", [*map(number_of, calls("absent")), 1000])
def test_what_is_absent_does_not_exist(number: int) -> None:
    assert outcome(number, NOTHING, enter) == "ENOSYS"


def test_what_is_absent_exists_without_the_filter() -> None:
    for call in calls("absent"):
        assert outcome(number_of(call), NOTHING, lambda: None) != "ENOSYS"


def become_nobody() -> None:
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)


def test_what_only_an_exploit_calls_is_deadly() -> None:
    for call in calls("kill"):
        number = number_of(call)
        assert outcome(number, NOTHING, enter) == f"died: -{signal.SIGSYS:d}", call
        # The control as nobody, who has no right to any of it.
        assert outcome(number, NOTHING, become_nobody) in {"EPERM", "EINVAL", "ENOSYS", "EFAULT"}
