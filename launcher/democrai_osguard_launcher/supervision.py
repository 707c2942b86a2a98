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
from .enforcement import close_others
from .errors import NotEnforced

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    import socket
    from typing import NoReturn, Protocol

    from .broker import Roots
    from .plan import Plan

    class Companion(Protocol):
        """Who looks on outside, and sees more calls than must be brokered."""

        waiting: str  # the kind of calls
        file: int  # a descriptor that it needs

        def begin(self, command: int) -> None:
            """Say which process becomes the command."""

        def make_broker(self, plan: Plan, roots: Roots, listener: int) -> Broker:
            """Return the broker that works with it."""

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
_FROM_THE_ROOT = -100  # AT_FDCWD, which an absolute path does without


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
        """Have the supervising process take the listener.

        Sending it would not do: the filter is in force, and a call that sends may have to wait for
        whoever has the listener.
        """
        os.write(self.descriptor, listener.to_bytes(4, "little"))
        os.read(self.descriptor, 1)  # until it was taken, or nobody is there to take it
        os.close(listener)

    def close(self) -> None:
        """Leave nothing of the channel to the command."""
        self._inside.close()

    def stay_outside(self) -> int:
        """Keep only the supervisor's end, and return its descriptor."""
        self._inside.close()
        return self._outside.fileno()

    def take(self, command: int) -> int | None:
        """Wait for the listener of that process; None when it ended without one."""
        number = os.read(self._outside.fileno(), 4)
        if not number:
            return None
        process = os.pidfd_open(command)
        try:
            listener = kernel.copy_descriptor(process, int.from_bytes(number, "little"))
        finally:
            os.close(process)
        os.write(self._outside.fileno(), b"T")
        return listener


def split(plan: Plan, companion: Companion | None = None) -> Channel:
    """Fork. Return in the process that will be the command; the other one never returns."""
    if plan.brokered or companion:
        _check_that_a_broker_can_work()
    channel = Channel()
    supervisor = os.getpid()
    roots = resolve_roots(planned.rule for planned in plan.rules)
    # Until the supervisor can pass a signal on it waits: it must not end the supervisor instead.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (*_PASSED_ON, signal.SIGTSTP))
    command = os.fork()
    if command:
        _let_go({channel.stay_outside(), *((companion.file,) if companion else ())})
        _pass_signals_on(command)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        listener = channel.take(command) if plan.brokered or companion else None
        broker = None if listener is None else _make_broker(plan, roots, listener, companion)
        if companion:
            companion.begin(command)
        _supervise(command, broker)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    kernel.set_death_signal(signal.SIGKILL)  # without its broker the command is half a command
    if os.getppid() != supervisor:
        os._exit(_FATAL_SHIFT + signal.SIGKILL)
    os.setsid()
    channel.stay_inside()
    return channel


def _make_broker(plan: Plan, roots: Roots, listener: int, companion: Companion | None) -> Broker:
    if companion is not None:
        return companion.make_broker(plan, roots, listener)
    return Broker(roots, listener, seccomp.brokered_numbers(os.uname().machine))


def _check_that_a_broker_can_work() -> None:
    """Raise NotEnforced inside another launch: what a broker looks up with is refused there."""
    try:
        os.close(kernel.open_without_magic_links(_FROM_THE_ROOT, b"/", os.O_PATH | os.O_CLOEXEC))
    except OSError as error:
        raise NotEnforced("refused: inside another launch no broker can work") from error


def _supervise(command: int, broker: Broker | None) -> NoReturn:
    ended = os.pidfd_open(command)
    poll = select.poll()
    poll.register(ended, select.POLLIN)
    for descriptor in broker.descriptors if broker else ():
        poll.register(descriptor, select.POLLIN)
    while True:
        ready = dict(poll.poll(broker.patience if broker else None))
        if ended in ready:
            _end_like(command)
        if broker is None:
            continue
        broker.tend(ready)
        for descriptor, events in ready.items():
            # The last process under the filter is gone, or nobody can be asked any more.
            if not events & select.POLLIN or descriptor not in broker.descriptors:
                poll.unregister(descriptor)


def _pass_signals_on(command: int) -> None:
    for number in _PASSED_ON:
        signal.signal(number, lambda received, _frame: os.kill(command, received))
    signal.signal(signal.SIGTSTP, lambda _received, _frame: _stop(command))


def _let_go(keep: set[int]) -> None:
    """Close what belongs to the command: its readers and writers wait for the last holder."""
    close_others(keep)
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
