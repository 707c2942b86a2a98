"""Unix sockets with a path, by rule: one that may be modified may be talked to, and no other."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
import socket
import sys
import threading
import time
from typing import TYPE_CHECKING

import pytest
from host_features import landlock_abi
from kernel.conftest import plan_for

from democrai_osguard_launcher.plan import FULL, NO_SOCKETS, NOT_TO_HELPER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from kernel.conftest import Action, Confined, Free, Grant, Launch

pytestmark = pytest.mark.needs("landlock", "seccomp")

STREAM, DATAGRAM = socket.SOCK_STREAM, socket.SOCK_DGRAM
ROUNDS = 10_000
SECONDS = 60.0  # where a machine is emulated, as many rounds as fit


@contextlib.contextmanager
def listener(path: Path, kind: int = STREAM) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, kind) as own:
        own.bind(str(path))
        if kind == STREAM:
            own.listen(1)
        own.settimeout(60)
        yield own


def talk(path: str | Path, kind: int = STREAM) -> Action:
    def act() -> None:
        with socket.socket(socket.AF_UNIX, kind) as client:
            client.connect(os.fspath(path))
            client.send(b"hello")

    return act


def send(path: str | Path) -> Action:
    return lambda: socket.socket(socket.AF_UNIX, DATAGRAM).sendto(b"hello", os.fspath(path))


def send_message(path: str | Path) -> Action:
    def act() -> None:
        own = socket.socket(socket.AF_UNIX, DATAGRAM)
        own.sendmsg([b"hello"], [], 0, os.fspath(path))

    return act


WAYS: dict[str, tuple[Callable[[Path], Action], int]] = {
    "connect": (talk, STREAM),
    "connect a datagram socket": (lambda path: talk(path, DATAGRAM), DATAGRAM),
    "sendto": (send, DATAGRAM),
    "sendmsg": (send_message, DATAGRAM),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_rule_opens_its_socket_and_no_other(
    way: str, tmp_path: Path, free: Free, confined: Confined
) -> None:
    act, kind = WAYS[way]
    own, other = tmp_path / "own", tmp_path / "other"
    with listener(own, kind) as server, listener(other, kind):
        rules = [("modify", own), ("read", tmp_path)]
        assert plan_for(rules).level == FULL
        assert confined(act(own), *rules) == "allowed"
        end = server.accept()[0] if kind == STREAM else server
        assert end.recv(10) == b"hello"
        end.close()
        assert confined(act(other), *rules) == "EACCES"
        assert free(act(other)) == "allowed"


@pytest.mark.skipif(landlock_abi() >= 9, reason="Landlock itself judges sockets beneath a folder")
def test_a_folder_opens_its_sockets_only_beside_a_named_one_and_explain_says_so(
    tmp_path: Path, confined: Confined
) -> None:
    own, other = tmp_path / "own", tmp_path / "folder/other"
    other.parent.mkdir()
    folder = ("modify", other.parent)
    with listener(own), listener(other):
        assert confined(talk(other), folder) == "EACCES"
        assert plan_for([folder]).rules[0].held_by.endswith(NO_SOCKETS)
        assert confined(talk(other), folder, ("modify", own)) == "allowed"
        assert NO_SOCKETS not in plan_for([folder, ("modify", own)]).rules[0].held_by
        assert NO_SOCKETS not in plan_for([("read", other.parent)]).rules[0].held_by


def test_where_a_path_really_leads_counts(tmp_path: Path, confined: Confined) -> None:
    own, other = tmp_path / "own", tmp_path / "other"
    (tmp_path / "to-own").symlink_to(own)
    (tmp_path / "to-other").symlink_to(other)

    def from_its_folder() -> None:
        os.chdir(tmp_path)
        talk("own")()

    with listener(own), listener(other):
        assert confined(talk(tmp_path / "to-own"), ("modify", own)) == "allowed"
        assert confined(talk(tmp_path / "to-other"), ("modify", own)) == "EACCES"
        assert confined(from_its_folder, ("modify", own)) == "allowed"
    (tmp_path / "plain").write_text("x")
    with listener(tmp_path / "again"):
        rules = [("modify", tmp_path / "again"), ("modify", tmp_path / "plain")]
        assert confined(talk(tmp_path / "plain"), *rules) == "ECONNREFUSED"
        assert confined(talk(tmp_path / "missing"), *rules) == "ENOENT"


def test_the_helpers_socket_is_never_connected_to(
    tmp_path: Path, confined: Confined, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The helper would take the broker for the one who asks; a second name changes nothing."""
    own, second = tmp_path / "own", tmp_path / "second"
    with listener(own):
        os.link(own, second)
        rules = [("modify", own), ("modify", second)]
        assert confined(talk(second), *rules) == "allowed"
        monkeypatch.setenv("DEMOCRAI_OS_HELPER_SOCKET", str(own))
        assert confined(talk(own), *rules) == "EACCES"
        assert confined(talk(second), *rules) == "EACCES"


def test_a_folder_opens_its_sockets_without_the_helpers(
    tmp_path: Path, confined: Confined, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, other = tmp_path / "own", tmp_path / "other"
    rules = [("modify", tmp_path), ("modify", other)]
    with listener(own), listener(other):
        assert confined(talk(own), *rules) == "allowed"
        monkeypatch.setenv("DEMOCRAI_OS_HELPER_SOCKET", str(own))
        assert confined(talk(own), *rules) == "EACCES"
        assert confined(talk(other), *rules) == "allowed"


@pytest.mark.parametrize("target", ["own", "."])
def test_a_command_with_a_rule_for_the_helpers_socket_starts_and_is_told(
    target: str, tmp_path: Path, launch: Launch
) -> None:
    """What is tried before it starts counts on the same answer as the command will get."""
    own = tmp_path / "own"
    where = {"DEMOCRAI_OS_HELPER_SOCKET": str(own)}
    rules = ("--modify", tmp_path / target, "--read", tmp_path)
    act = f"import socket; socket.socket(socket.AF_UNIX).connect({str(own)!r})"
    with listener(own):
        result = launch(*rules, "--", sys.executable, "-I", "-c", act, environment=where)
        assert "PermissionError" in result.stderr
        assert result.returncode == 1
        explained = launch("--explain", *rules, "--", "true", environment=where).stdout
        assert (NOT_TO_HELPER in explained) == (target == "own")


def test_abstract_sockets_stay_closed(tmp_path: Path, free: Free, confined: Confined) -> None:
    name = f"\0democrai-test-{os.getpid()}"
    with listener(tmp_path / "own"), socket.socket(socket.AF_UNIX) as abstract:
        abstract.bind(name)
        abstract.listen()
        assert confined(talk(name), ("modify", tmp_path / "own")) == "EPERM"
        assert free(talk(name)) == "allowed"


def test_a_full_queue_makes_its_caller_wait_and_nobody_else(
    tmp_path: Path, confined: Confined
) -> None:
    path = str(tmp_path / "own")
    with listener(tmp_path / "own") as server, contextlib.ExitStack() as kept:
        server.listen(0)
        kept.enter_context(socket.socket(socket.AF_UNIX)).connect(path)
        os.mkfifo(tmp_path / "fifo")

        def act() -> None:
            hurried = socket.socket(socket.AF_UNIX)
            hurried.setblocking(False)
            with pytest.raises(BlockingIOError):
                hurried.connect(path)
            patient = socket.socket(socket.AF_UNIX)
            waiting = threading.Thread(target=patient.connect, args=(path,))
            waiting.start()
            with pytest.raises(BlockingIOError):
                hurried.connect(path)
            with open(tmp_path / "fifo", "w") as fifo:
                fifo.write("now")
            waiting.join()
            patient.send(b"hello")

        def interrupted() -> None:
            def ring(*_: object) -> None:
                raise TimeoutError(errno.ETIMEDOUT, "")

            signal.signal(signal.SIGALRM, ring)
            signal.setitimer(signal.ITIMER_REAL, 0.3)
            socket.socket(socket.AF_UNIX).connect(path)

        assert confined(interrupted, ("modify", tmp_path / "own")) == "ETIMEDOUT"

        def accept() -> None:
            (tmp_path / "fifo").read_text()
            for _ in range(2):
                kept.enter_context(server.accept()[0])

        helper = threading.Thread(target=accept)
        helper.start()
        grants = [("modify", tmp_path / "own"), ("modify", tmp_path / "fifo")]
        assert confined(act, *grants) == "allowed"
        helper.join()


def _until_it_is_met(wrong: socket.socket, control: Callable[[], str]) -> None:
    """Repeat the control of a race: without a rule the other socket is met, sooner or later."""
    for _ in range(100):
        assert control() == "allowed"
        if select.select([wrong], [], [], 0)[0]:
            return


def test_a_path_that_is_swapped_all_the_time_leads_nowhere_else(
    tmp_path: Path, confined: Confined, free: Free
) -> None:
    """Another process exchanges the socket for a link to another one; the rule stays."""
    own, other, swapped = tmp_path / "own", tmp_path / "other", tmp_path / "swapped"
    swapped.symlink_to(own)
    with listener(own, DATAGRAM), listener(other, DATAGRAM) as wrong:
        stop = threading.Event()

        def swap() -> None:
            while not stop.is_set():
                for place in (other, own):
                    (tmp_path / "new").symlink_to(place)
                    (tmp_path / "new").rename(swapped)

        def act() -> None:
            client = socket.socket(socket.AF_UNIX, DATAGRAM)
            client.setblocking(False)
            until = time.monotonic() + SECONDS
            for _ in range(ROUNDS):
                with contextlib.suppress(OSError):
                    client.sendto(b"x", str(swapped))
                if time.monotonic() > until:
                    break

        thread = threading.Thread(target=swap)
        thread.start()
        try:
            wrong.setblocking(False)
            assert confined(act, ("modify", own)) == "allowed"
            with pytest.raises(BlockingIOError):
                wrong.recv(10)
            _until_it_is_met(wrong, lambda: free(act))
        finally:
            stop.set()
            thread.join()
        assert wrong.recv(10) == b"x"


def test_network_sockets_still_do_not_listen(tmp_path: Path, confined: Confined) -> None:
    def listen(family: int) -> Action:
        def act() -> None:
            own = socket.socket(family)
            if family == socket.AF_UNIX:
                own.bind(str(tmp_path / "folder/new"))
            own.listen()

        return act

    (tmp_path / "folder").mkdir()
    with listener(tmp_path / "own"):
        rules: list[Grant] = [("modify", tmp_path / "own"), ("connect", "127.0.0.1:80")]
        assert confined(listen(socket.AF_INET), *rules) == "EACCES"
        creating = [*rules, ("create", tmp_path / "folder")]
        assert confined(listen(socket.AF_UNIX), *creating) == "allowed"


def test_landlock_judges_paths_where_it_can(tmp_path: Path) -> None:
    with listener(tmp_path / "own"):
        brokered = plan_for([("modify", tmp_path / "own")]).brokered
    assert ("socket paths" in brokered) is (landlock_abi() < 9)
