"""The process that stays outside: it waits for the command, passes signals on, and brokers.

Needed where something must be brokered, or where there is a terminal that the command could be
typed into: the command then runs in a session of its own, unless who starts it has seen to that.
Otherwise the launcher becomes the
command and nothing stays.
"""

from __future__ import annotations

import gc
import os
import select

from . import kernel, objects, seccomp
from .broker import Broker, resolve_roots
from .enforcement import CAPABILITIES, close_others
from .errors import Exit, NotEnforced
from .plan import CONNECT, SOCKET_PATHS
from .rules import FILESYSTEM, OPERATIONS
from .starting import identities

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    import socket
    from collections.abc import Callable, Iterator, Mapping
    from typing import NoReturn, Protocol

    from .broker import Roots
    from .grants import Grants
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
# What the command has, so that it can have nothing done that it could not do; and to look into it.
_SYS_PTRACE = 19
_KEPT = (*CAPABILITIES, _SYS_PTRACE)


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


def split(plan: Plan, companion: Companion | None = None, *, own_session: bool = True) -> Channel:
    """Fork. Return in the process that will be the command; the other one never returns."""
    if plan.brokered or companion:
        _check_that_a_broker_can_work()
    if not own_session:
        kernel.adopt_orphans()  # in a session that is not its own nothing else tells whose they are
    channel = Channel()
    supervisor = os.getpid()
    roots = resolve_roots(planned.rule for planned in plan.rules)
    # Landlock holds the others, but for what the broker does after a question.
    noted = objects.note(roots, OPERATIONS[FILESYSTEM] if _asks(companion) else ("modify",))
    loaders = identities(plan.loaders, roots)
    sight = _sight(plan) if "look" in plan.brokered else None
    # Until the supervisor can pass a signal on it waits: it must not end the supervisor instead.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (*_PASSED_ON, signal.SIGTSTP))
    command = os.fork()
    if command:
        gc.freeze()  # what was loaded stays; what comes now may live long
        gc.enable()
        _let_go({channel.stay_outside(), *_files(companion)})
        _pass_signals_on(command)
        signal.signal(signal.SIGCHLD, lambda *_: reap_others(command))
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

        def begin() -> Broker | None:
            waits = plan.brokered or companion
            listener = channel.take(command) if waits else None
            kernel.keep_capabilities(_KEPT)
            broker = None if listener is None else _make_broker(plan, roots, listener, companion)
            if broker:
                broker.loaders, broker.sight, broker.noted = loaders, sight, noted
            return broker

        _stay(command, begin, companion)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    kernel.set_death_signal(signal.SIGKILL)  # without its broker the command is half a command
    if os.getppid() != supervisor:
        os._exit(_FATAL_SHIFT + signal.SIGKILL)
    if own_session:
        os.setsid()
    channel.stay_inside()
    return channel


def _files(companion: Companion | None) -> tuple[int, ...]:
    return (companion.file,) if companion else ()


def _asks(companion: Companion | None) -> bool:
    return companion is not None and companion.waiting == seccomp.HELD


def _sight(plan: Plan) -> Grants:
    from . import looking  # noqa: F401, PLC0415 - read now, while the command can change nothing
    from .grants import Grants  # noqa: PLC0415 - few launches look at anything

    return Grants(plan)


def _make_broker(plan: Plan, roots: Roots, listener: int, companion: Companion | None) -> Broker:
    if companion is not None:
        broker = companion.make_broker(plan, roots, listener)
    else:
        broker = Broker(roots, listener, seccomp.brokered_numbers(os.uname().machine))
    if CONNECT in plan.brokered or SOCKET_PATHS in plan.brokered:
        from .connections import Connections  # noqa: PLC0415 - only where something is dialled

        # Whoever explains or asks speaks of names.
        curious = _asks(companion) or (companion is not None and CONNECT in plan.brokered)
        broker.connections = Connections(plan, broker, curious=curious)
    return broker


def _check_that_a_broker_can_work() -> None:
    """Raise NotEnforced inside another launch: what a broker looks up with is refused there."""
    try:
        here = os.O_PATH | os.O_CLOEXEC
        os.close(kernel.open_without_magic_links(kernel.FROM_THE_ROOT, b"/", here))
    except OSError as error:
        raise NotEnforced("refused: inside another launch no broker can work") from error


def _stay(
    command: int, begin: Callable[[], Broker | None], companion: Companion | None
) -> NoReturn:
    """Supervise the command to its end; it does not outlive a supervisor that fails."""
    try:
        broker = begin()
        if companion:
            companion.begin(command)
        _supervise(command, broker)
    except Exception as error:  # noqa: BLE001 - nobody further out could end the command
        said = _error_output(command)
        os.kill(command, signal.SIGKILL)
        _say(said, f"democrai-launch: the supervisor failed: {type(error).__name__}\n")
        os._exit(Exit.NOT_ENFORCED)


def _error_output(command: int) -> int | None:
    """Return a copy of where the command writes errors: the supervisor has kept nothing of it."""
    try:
        return kernel.copy_descriptor(os.pidfd_open(command), _FIRST_OWN_DESCRIPTOR - 1)
    except OSError:
        return None


def _say(file: int | None, line: str) -> None:
    """Write a line, unless that would have to wait."""
    try:
        if file is not None and select.select((), (file,), (), 0)[1]:
            os.write(file, line.encode())
    except (OSError, ValueError):
        return


def _supervise(command: int, broker: Broker | None) -> NoReturn:
    ended = os.pidfd_open(command)
    connections = broker.connections if broker else None
    dialling = connections.descriptors if connections else ()
    poll = select.poll()
    for descriptor in (ended, *(broker.descriptors if broker else ()), *dialling):
        poll.register(descriptor, select.POLLIN)
    usual = [(broker.listener, select.POLLIN)] if broker else []
    while True:
        events = poll.poll(_patience(broker))
        ready = dict(events)
        if ended in ready:
            _end_like(command)
        if broker is None:
            continue
        broker.tend(ready)
        if connections:
            connections.tend()
        for descriptor in _finished(broker, ready, dialling) if events != usual else ():
            poll.unregister(descriptor)


def _finished(broker: Broker, ready: Mapping[int, int], dialling: tuple[int, ...]) -> Iterator[int]:
    """Yield what need not be waited for any more.

    The last process under the filter is gone, or nobody can be asked.
    """
    for descriptor, events in ready.items():
        if descriptor in dialling:
            continue
        if not events & select.POLLIN or descriptor not in broker.descriptors:
            yield descriptor


def _patience(broker: Broker | None) -> int | None:
    """Return after how many milliseconds to look again; None for whenever something happens."""
    if broker is None or broker.connections is None:
        return broker.patience if broker else None
    seconds = broker.connections.patience
    own = None if seconds is None else int(seconds * 1000)
    return min((each for each in (own, broker.patience) if each is not None), default=None)


def _pass_signals_on(command: int) -> None:
    for number in _PASSED_ON:
        signal.signal(number, lambda received, _frame: os.kill(command, received))
    signal.signal(signal.SIGTSTP, lambda _received, _frame: _stop(command))


def reap_others(command: int) -> None:
    """Reap what was left behind and has ended; the command itself is waited for elsewhere."""
    how = os.WEXITED | os.WNOHANG | os.WNOWAIT
    try:
        while (found := os.waitid(os.P_ALL, 0, how)) and found.si_pid != command:
            os.waitpid(found.si_pid, 0)
    except ChildProcessError:
        return  # the signal came after the command was waited for, and nobody else is left


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
