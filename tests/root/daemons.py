"""A helper daemon of the test's own, and processes that it confines."""

from __future__ import annotations

import contextlib
import mmap
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from root import attempts
from root.lab import PATIENCE

from democrai_osguard_helper.client import Client, HelperUnavailable
from democrai_osguard_helper.protocol import Applied, Confine, Subject

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from democrai_osguard_helper.endpoints import Endpoint, NameRule

HELPER: Final = Path(__file__).resolve().parents[2] / "helper"
NOBODY: Final = 65534
START_SECONDS: Final = 600.0
STORM_SECONDS: Final = 120.0  # at most: it ends when the test says so
# The daemon as it is, but it kills itself when it comes to a step for the nth time.
_SCRIPT: Final = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])
from democrai_osguard_helper.main import serve
step, left = sys.argv[2], [int(sys.argv[3])]
def checkpoint(name):
    if name == step:
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
sys.exit(serve(sys.argv[4:], checkpoint))
"""


class Daemon:
    """A running helper; `instance` keeps it apart from every other."""

    def __init__(self, folder: Path, instance: str, layers: str = "bpf,firewall") -> None:
        self.folder = folder
        self.instance = instance
        self.layers = layers
        self.socket = str(folder / "helper.sock")
        self.process: subprocess.Popen[bytes] | None = None
        self.prefix: tuple[str, ...] = ()

    def start(self, *options: str, die_at: str = "", nth: int = 1) -> None:
        words = [*self.prefix, sys.executable, "-I", "-c", _SCRIPT, str(HELPER), die_at, str(nth)]
        chosen = ("--layers", self.layers, "--instance", self.instance)
        places = ("--socket", self.socket, "--state", str(self.folder / "state"))
        self.process = subprocess.Popen([*words, *chosen, *places, *options])

    def wait(self) -> None:
        """Wait until it answers."""
        assert self.process is not None
        until = time.monotonic() + START_SECONDS
        while time.monotonic() < until:
            assert self.process.poll() is None, "the daemon ended"
            with contextlib.suppress(HelperUnavailable), Client(self.socket) as client:
                client.status()
                return
            time.sleep(0.02)
        raise AssertionError("the daemon does not answer")

    def run(self, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
        """Run a program that finds this helper, with more variables; return how it ended."""
        environment = {**os.environ, "DEMOCRAI_OS_HELPER_SOCKET": self.socket, **more}
        return subprocess.run(
            words, env=environment, capture_output=True, text=True, check=False,
            timeout=START_SECONDS,
        )  # fmt: skip

    def kill(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            self.process.wait()


class Resident:
    """A process that was confined and does what it is told: `tcp 198.18.0.1 7001`."""

    def __init__(  # noqa: PLR0913 - what a peer may say
        self,
        path: str,
        endpoints: Sequence[Endpoint],
        names: Sequence[NameRule] = (),
        *,
        require: str = "partial",
        refresh: int | None = None,
        before: Callable[[], None] | None = None,
    ) -> None:
        self._request = Confine(
            Subject("module", "demo"), "s1", tuple(endpoints), tuple(names), require, refresh
        )
        ours, theirs = socket.socketpair()
        self._calm = mmap.mmap(-1, 1)  # shared with the child
        self.pid = os.fork()
        if self.pid == 0:
            ours.close()
            self._live(path, theirs, before)
        theirs.close()
        ours.settimeout(START_SECONDS)
        self._stream = ours.makefile("rw")
        ours.close()
        self.sandbox = self._stream.readline().strip()

    def does(self, name: str, address: str, port: int) -> str:
        """Tell it to try something; return what happened."""
        self.begin(name, address, port)
        return self.result()

    def begin(self, name: str, address: str, port: int) -> None:
        self._stream.write(f"{name} {address} {port}\n")
        self._stream.flush()

    def weather(self) -> str:
        """End a storm; return what came of it."""
        self._calm[0] = 1
        said = self.result()
        self._calm[0] = 0
        return said

    def result(self) -> str:
        return self._stream.readline().strip()

    def end(self) -> None:
        self._stream.close()
        self._calm.close()
        with contextlib.suppress(ChildProcessError):
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)

    def _live(self, path: str, stream: socket.socket, before: Callable[[], None] | None) -> None:
        try:
            if before is not None:
                before()
            _calm.append(self._calm)
            talk = stream.makefile("rw")
            talk.write(f"{_confine(path, self._request)}\n")
            talk.flush()
            for line in talk:
                talk.write(f"{_act(line)}\n")
                talk.flush()
        finally:
            os._exit(0)


def _confine(path: str, request: Confine) -> str:
    try:
        with Client(path) as client:
            applied: Applied = client.confine(request)
    except Exception as error:  # noqa: BLE001 - the parent is told whatever it was
        return f"! {error}"
    return applied.sandbox


_kept: dict[str, socket.socket] = {}
_calm: list[mmap.mmap] = []


def _act(line: str) -> str:
    name, address, port = line.split()
    try:
        action = _ACTIONS.get(name) or getattr(attempts, name)
        return "allowed" if action(address, int(port)) == b"ok" else "silent"
    except TimeoutError:
        return "silent"
    except OSError as error:
        return type(error).__name__ if error.errno is None else os.strerror(error.errno)


def _hold(address: str, port: int) -> bytes:
    """Connect, and keep the connection."""
    kept = _kept["one"] = socket.create_connection((address, port), timeout=PATIENCE)
    kept.send(b"hello")
    return kept.recv(64)


def _talk(_address: str, _port: int) -> bytes:
    """Use the connection that was kept."""
    _kept["one"].send(b"hello")
    return _kept["one"].recv(64)


def _storm(address: str, port: int) -> bytes:
    """Try again and again until the test has seen enough; one success is success."""
    until = time.monotonic() + STORM_SECONDS
    while time.monotonic() < until:
        with contextlib.suppress(OSError):
            if attempts.tcp(address, port) == b"ok":
                return b"ok"
        if _calm[-1][0]:
            return b""
    raise TimeoutError("the storm was forgotten")


def _steady(address: str, port: int) -> bytes:
    """Connect again and again until the test has seen enough; one refusal is a failure."""
    until = time.monotonic() + STORM_SECONDS
    while time.monotonic() < until:
        answer = attempts.tcp(address, port)
        if answer != b"ok" or _calm[-1][0]:
            return answer
    raise TimeoutError("it was forgotten")


def _own(address: str, _port: int) -> bytes:
    """Listen, and connect to oneself."""
    _kept["listener"] = socket.create_server((address, 0))
    place = _kept["listener"].getsockname()
    _kept["one"] = socket.create_connection(place, timeout=PATIENCE)
    _kept["other"], _ = _kept["listener"].accept()
    return _own_again(address, 0)


def _own_again(_address: str, _port: int) -> bytes:
    """Use that connection in both directions, and make another."""
    _kept["one"].send(b"hello")
    _kept["other"].recv(64)
    _kept["other"].send(b"ok")
    answer = _kept["one"].recv(64)
    socket.create_connection(_kept["listener"].getsockname(), timeout=PATIENCE).close()
    return answer


_ACTIONS: Final = {
    "hold": _hold,
    "talk": _talk,
    "steady": _steady,
    "storm": _storm,
    "own": _own,
    "own_again": _own_again,
}


def become(uid: int) -> None:
    """Be an ordinary user, in a group that may open the socket where the test says so."""
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(uid)


@contextlib.contextmanager
def resident(*args: object, **kwargs: object) -> Iterator[Resident]:
    """Confine a process for the time of a block."""
    child = Resident(*args, **kwargs)  # type: ignore[arg-type]
    try:
        assert not child.sandbox.startswith("!"), child.sandbox
        yield child
    finally:
        child.end()


def eventually(holds: Callable[[], bool], seconds: float = 60.0) -> bool:
    """Wait until something holds; tell whether it did."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if holds():
            return True
        time.sleep(0.02)
    return holds()
