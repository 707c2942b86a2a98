"""A process beside one that confines itself: it stays outside and follows the approvals for it.

It ends when the process that started it does, or when that one says so.
"""

from __future__ import annotations

import subprocess
import sys

_READY = b"ready\n"
_running: list[Companion] = []  # until this process ends


class Companion:
    """The other process, and the pipe that keeps it alive."""

    def __init__(self, store: str) -> None:
        command = [sys.executable, "-I", "-m", __name__, store]
        self._process = subprocess.Popen(  # noqa: S603 - our own module
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def is_ready(self) -> bool:
        """Wait until it follows the store; tell whether it does."""
        assert self._process.stdout is not None  # noqa: S101 - a pipe was asked for
        return self._process.stdout.readline() == _READY

    def end(self) -> None:
        """Let it end, and wait for that."""
        self._process.communicate()


def start_companion(store: str) -> Companion:
    """Start a companion for this process; raise RuntimeError where the store cannot be opened."""
    companion = Companion(store)
    if not companion.is_ready():
        companion.end()
        raise RuntimeError("the process that follows the approvals did not start")
    _running.append(companion)
    return companion


def run() -> None:
    """Follow the store that the command line names until the standard input ends."""
    from democrai_osguard.approvals import open_service  # noqa: PLC0415 - in this process only
    from democrai_osguard.enforcement.following import EgressLink  # noqa: PLC0415 - as above

    service = open_service(sys.argv[1])
    with EgressLink(service):
        sys.stdout.buffer.write(_READY)
        sys.stdout.buffer.flush()
        sys.stdin.buffer.read()
    service.close()


if __name__ == "__main__":
    run()
