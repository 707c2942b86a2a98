"""A launch that is waited for to its end: signals go to the command, and what was seen stays."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import FrameType

LAUNCHER = (sys.executable, "-I", "-m", "democrai_osguard_launcher")
# What a terminal, a shell or a service manager sends to end, to hurry or to resize a command.
_PASSED_ON = (
    signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2,
    signal.SIGWINCH, signal.SIGCONT,
)  # fmt: skip
_FATAL_SHIFT = 128


class Running:
    """The launcher, once it was started, and the signals that came before."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._early: list[int] = []

    def start(self, words: Sequence[str], *, keep: Sequence[int] = ()) -> None:
        """Start the launcher, in a group of its own: what a terminal sends comes by here, once."""
        self._process = subprocess.Popen(  # noqa: S603 - the command is what was asked for
            [*LAUNCHER, *words], pass_fds=tuple(keep), process_group=0
        )
        for number in self._early:
            self._process.send_signal(number)

    def wait(self) -> int:
        """Return the command's code, or for a signal what a shell would say."""
        code = self._process.wait() if self._process else 0
        return code if code >= 0 else _FATAL_SHIFT - code

    def pass_on(self, number: int, _frame: FrameType | None) -> None:
        """Send a signal on to the launcher, which has its own way to the command."""
        if self._process is None:
            self._early.append(number)
        else:
            self._process.send_signal(number)

    def stop(self, number: int, frame: FrameType | None) -> None:
        """Stop the command, and then this process as well."""
        self.pass_on(number, frame)
        os.kill(os.getpid(), signal.SIGSTOP)


@contextmanager
def passing_signals_on() -> Iterator[Running]:
    """Have no signal end this process while the command runs, and wait for it in any case."""
    running = Running()
    before = {each: signal.signal(each, running.pass_on) for each in _PASSED_ON}
    before[signal.SIGTSTP] = signal.signal(signal.SIGTSTP, running.stop)
    try:
        yield running
    finally:
        running.wait()
        for number, handler in before.items():
            signal.signal(number, handler)
