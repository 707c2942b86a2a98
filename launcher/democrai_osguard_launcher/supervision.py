"""The process that stays outside: it waits for the command, passes signals on, and brokers.

Needed where something must be brokered, or where there is a terminal that the command could be
typed into: the command then runs in a session of its own. Otherwise the launcher becomes the
command and nothing stays.
"""

from __future__ import annotations

import os
import select

from . import kernel, seccomp
from .broker import Broker, resolve_roots

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    import socket
    from typing import NoReturn

    from .broker import Roots
    from .plan import Plan
else:
    import _signal as signal  # built in; `signal` and `socket` would import `enum`
    import _socket as socket

# What a terminal, a shell or a service manager sends to end, to hurry or to resize a command.
_PASSED_ON = (
    signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2,
    signal.SIGALRM, signal.SIGWINCH, signal.SIGCONT,
)  # fmt: skip
_FATAL_SHIFT = 128
_FIRST_OWN_DESCRIPTOR = 3


class Channel:
    """The way on which the command's process hands its listener out, once."""

    def __init__(self) -> None:
        self._inside, self._outside = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM, 0)

    def stay_inside(self) -> None:
        """Keep only the end of the command's process."""
        self._outside.close()

    @property
    def descriptor(self) -> int:
        """Return the descriptor that must survive until the listener is handed out."""
        return self._inside.fileno()

    def hand_out(self, listener: int) -> None:
        """Send the listener to the supervising process."""
        right = listener.to_bytes(4, "little")
        self._inside.sendmsg([b"L"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, right)])
        os.close(listener)

    def close(self) -> None:
        """Leave nothing of the channel to the command."""
        self._inside.close()

    def stay_outside(self) -> int:
        """Keep only the supervisor's end, and return its descriptor."""
        self._inside.close()
        return self._outside.fileno()

    def take(self) -> int | None:
        """Wait for the listener; None when the other process ended without one."""
        _, ancillary, _, _ = self._outside.recvmsg(1, socket.CMSG_SPACE(4))
        return int.from_bytes(ancillary[0][2][:4], "little") if ancillary else None


def split(plan: Plan) -> Channel:
    """Fork. Return in the process that will be the command; the other one never returns."""
    channel = Channel()
    supervisor = os.getpid()
    roots = resolve_roots(planned.rule for planned in plan.rules)
    # Until the supervisor can pass a signal on it waits: it must not end the supervisor instead.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (*_PASSED_ON, signal.SIGTSTP))
    command = os.fork()
    if command:
        _let_go(channel)
        _pass_signals_on(command)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        listener = channel.take() if plan.brokered else None
        _supervise(command, roots, listener)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    kernel.set_death_signal(signal.SIGKILL)  # without its broker the command is half a command
    if os.getppid() != supervisor:
        os._exit(_FATAL_SHIFT + signal.SIGKILL)
    os.setsid()
    channel.stay_inside()
    return channel


def _supervise(command: int, roots: Roots, listener: int | None) -> NoReturn:
    ended = os.pidfd_open(command)
    poll = select.poll()
    poll.register(ended, select.POLLIN)
    if listener is not None:
        poll.register(listener, select.POLLIN)
        broker = Broker(roots, listener, seccomp.brokered_numbers(os.uname().machine))
    while True:
        ready = dict(poll.poll())
        if ended in ready:
            _end_like(command)
        if listener is not None and ready.get(listener, 0) & select.POLLIN:
            broker.serve_one()
        elif listener in ready:
            poll.unregister(listener)  # the last process under the filter is gone


def _pass_signals_on(command: int) -> None:
    for number in _PASSED_ON:
        signal.signal(number, lambda received, _frame: os.kill(command, received))
    signal.signal(signal.SIGTSTP, lambda _received, _frame: _stop(command))


def _let_go(channel: Channel) -> None:
    """Close what belongs to the command: its readers and writers wait for the last holder."""
    keep = channel.stay_outside()
    if keep > _FIRST_OWN_DESCRIPTOR:
        kernel.close_range(_FIRST_OWN_DESCRIPTOR, keep - 1)
    kernel.close_range(max(keep + 1, _FIRST_OWN_DESCRIPTOR))
    nowhere = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
    for number in range(_FIRST_OWN_DESCRIPTOR):
        os.dup2(nowhere, number)


def _stop(command: int) -> None:
    # A stop from the terminal reaches only this session: pass it on, and stop as well.
    os.kill(command, signal.SIGSTOP)
    os.kill(os.getpid(), signal.SIGSTOP)


def _end_like(command: int) -> NoReturn:
    """End with the command's exit code, or by the signal that ended it."""
    code = os.waitstatus_to_exitcode(os.waitpid(command, 0)[1])
    if code >= 0:
        os._exit(code)
    kernel.forbid_core_dumps()  # the crash was the command's
    if -code not in {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
    os._exit(_FATAL_SHIFT - code)
