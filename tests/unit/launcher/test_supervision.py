"""The supervising process reaps what was left to it, whenever it is told of an end.

Each test is a fork, which has no children but its own.
"""

from __future__ import annotations

import os
import signal

from guard.confined import confined

from democrai_osguard_launcher.supervision import reap_others


def _ended(code: int) -> int:
    """Start a process that has ended, and has not been waited for."""
    child = os.fork()
    if child == 0:
        os._exit(code)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    return child


def _exit_code(pid: int) -> int | None:
    """Return how a child ended, None where there is no such child."""
    try:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    except ChildProcessError:
        return None


def _signalled_late() -> int | None:
    command = _ended(3)
    signal.signal(signal.SIGCHLD, lambda *_: reap_others(command))
    code = _exit_code(command)
    signal.raise_signal(signal.SIGCHLD)
    return code


def test_the_signal_of_an_end_may_come_after_the_command_was_waited_for() -> None:
    # One processor says by a process's file that it ended, while another still sends the signal.
    assert confined(_signalled_late) == 3


def _both_ended() -> list[int | None]:
    other, command = _ended(1), _ended(3)
    reap_others(command)
    return [_exit_code(other), _exit_code(command)]


def test_others_are_reaped_and_the_command_is_left_to_be_waited_for() -> None:
    assert confined(_both_ended) == [None, 3]
