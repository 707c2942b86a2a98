"""A process beside an application: it stays outside of every sandbox and follows the approvals.

Guarded code runs in the application itself, and what it can reach there it could use; so the line
to the helper is kept here. It ends when the process that started it does, or when that one says so.
"""

from __future__ import annotations

import atexit
import os
import select
import signal
import subprocess
import sys
import time

from democrai_osguard_helper.protocol import SOCKET_VARIABLE, socket_path

MOST_SECONDS = 30.0  # between two starts of a process that is killed again and again
_LOOK_SECONDS = 0.5
_READY = b"ready\n"
_AGAIN = "democrai-osguard: the process that follows the approvals is started again"
_running: dict[str, Companion] = {}  # store → who follows it, until this process ends


class Companion:
    """The other process, and the pipe that keeps it alive."""

    def __init__(self, store: str, helper: str) -> None:
        self._owner = os.getpid()
        self._process = subprocess.Popen(  # noqa: S603 - our own module
            [sys.executable, "-I", "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, SOCKET_VARIABLE: helper},
            start_new_session=True,  # what a terminal sends to the application is not for it
            bufsize=0,
        )
        assert self._process.stdin is not None  # noqa: S101 - a pipe was asked for
        # Not an argument: a URL may have a password in it, and everybody sees arguments.
        self._process.stdin.write(f"{store}\n".encode("utf-8", "surrogateescape"))

    def is_ready(self) -> bool:
        """Wait until it follows the store; tell whether it does."""
        assert self._process.stdout is not None  # noqa: S101 - a pipe was asked for
        return self._process.stdout.readline() == _READY

    def is_running(self) -> bool:
        """Tell whether it is there, and ours: a fork's belongs to the process before."""
        return self._owner == os.getpid() and self._process.poll() is None

    def end(self) -> None:
        """End it, and wait for that."""
        if self._owner == os.getpid():
            self._process.terminate()
            self._process.communicate()


def start_companion(store: str, helper: str | None = None) -> Companion:
    """Start a companion for this process; raise RuntimeError where the store cannot be opened."""
    known = _running.get(store)
    if known is not None and known.is_running():
        return known
    _end(store)
    companion = Companion(store, helper or socket_path())
    if not companion.is_ready():
        companion.end()
        raise RuntimeError("the process that follows the approvals did not start")
    _running[store] = companion
    return companion


def follow_only(store: str | None, helper: str | None = None) -> None:
    """Let a companion follow this store, without waiting for it, and no other one."""
    for other in [each for each in _running if each != store]:
        _end(other)
    if store is not None and not (store in _running and _running[store].is_running()):
        _end(store)
        _running[store] = Companion(store, helper or socket_path())


def _end(store: str) -> None:
    """End what is left of a companion, should there have been one."""
    if store in _running:
        _running.pop(store).end()


def _end_all() -> None:
    for companion in _running.values():
        companion.end()


atexit.register(_end_all)


def run() -> None:
    """Follow the store that the first line names until the standard input ends.

    Two processes do it: one follows, the other watches and starts it again when it is killed. They
    stay outside of every sandbox, where an application that is confined meanwhile could start none.
    """
    store = _first_line()
    if not store:
        return  # who started us ended before it could say anything
    failures, starts = 0, 0
    while _input_is_open(rest_after(failures)):
        began, watcher = time.monotonic(), os.getpid()
        child = os.fork()
        if child == 0:
            _follow(store, watcher, says_ready=starts == 0)
            code = -signal.SIGKILL  # whoever watched is gone: from here on we do
        else:
            code = _watched(child)
        if code == 0 or (starts == 0 and code > 0):  # the end, or a store that cannot be opened
            sys.exit(code)
        if starts == 0:
            sys.stderr.write(f"{_AGAIN} (it ended with {code})\n")
        failures = 0 if time.monotonic() - began > MOST_SECONDS else failures + 1
        starts += 1


def rest_after(failures: int) -> float:
    """Return how long to wait before a start: nothing at first, longer and longer then."""
    return min(2.0 ** min(failures - 2, 10), MOST_SECONDS) if failures > 1 else 0.0


def _first_line() -> str:
    line = b""
    while not line.endswith(b"\n") and (piece := os.read(0, 1)):
        line += piece
    return line.decode("utf-8", "surrogateescape").rstrip("\n")


def _input_is_open(seconds: float) -> bool:
    """Wait so long; tell whether whoever started us is still there."""
    return not select.select([0], [], [], seconds)[0]  # nothing is written there any more


def _watched(child: int) -> int:
    """Wait until the process ends, and end it when we are told to; return its exit code."""

    def end(*_: object) -> None:
        os.kill(child, signal.SIGTERM)
        os._exit(0)

    signal.signal(signal.SIGTERM, end)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    return code


def _follow(store: str, watcher: int, *, says_ready: bool) -> None:
    """Follow the store until the watching process is gone; end this one where the input does."""
    from democrai_osguard.approvals import open_service  # noqa: PLC0415 - in this process only
    from democrai_osguard.enforcement.following import EgressLink  # noqa: PLC0415 - as above
    from democrai_osguard.errors import OsGuardError  # noqa: PLC0415 - as above

    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        service = open_service(store)
    except OsGuardError as error:
        sys.exit(f"democrai-osguard: decisions are not brought to sandboxes: {error}")
    with EgressLink(service):
        if says_ready:
            os.write(1, _READY)
        while (is_open := _input_is_open(_LOOK_SECONDS)) and os.getppid() == watcher:
            pass
    service.close()
    if not is_open:
        sys.exit()


if __name__ == "__main__":
    run()
