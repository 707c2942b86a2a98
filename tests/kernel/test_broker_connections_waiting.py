"""Connections that take time: their caller waits, the broker and everybody else do not."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import socket
import struct
import threading
import time
from typing import TYPE_CHECKING

import pytest
from kernel.listeners import full_listener
from kernel.loopback import opened, server

from democrai_osguard_launcher import dialling
from democrai_osguard_launcher.dialling import MAX_WAITING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kernel.conftest import Confined, Free

pytestmark = pytest.mark.needs("landlock", "landlock-tcp", "seccomp")


@pytest.fixture
def slow() -> Iterator[int]:
    """Return the port of a listener that answers nobody any more."""
    with full_listener() as port:
        yield port


def test_a_slow_connection_holds_up_nobody_and_ends_with_its_time(
    slow: int, confined: Confined
) -> None:
    with server(socket.AF_INET) as (_, port):

        def act() -> None:
            waiting = socket.socket()
            waiting.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("qq", 1, 0))
            codes: list[int] = []
            thread = threading.Thread(
                target=lambda: codes.append(waiting.connect_ex(("127.0.0.1", slow)))
            )
            thread.start()
            for _ in range(20):
                opened(port).close()
            thread.join()
            assert codes == [errno.EINPROGRESS], codes

        grants = [("connect", f"127.0.0.1:{number}") for number in (port, slow)]
        assert confined(act, *grants) == "allowed"


def test_a_signal_interrupts_a_connection_that_waits(
    slow: int, free: Free, confined: Confined
) -> None:

    class Alarm(Exception):
        pass

    def act() -> None:
        def ring(*_: object) -> None:
            raise Alarm

        signal.signal(signal.SIGALRM, ring)
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        with pytest.raises(Alarm):
            socket.socket().connect(("127.0.0.1", slow))

    assert free(act) == "allowed"
    assert confined(act, ("connect", f"127.0.0.1:{slow}")) == "allowed"


def test_who_is_killed_while_it_waits_leaves_nothing_behind(slow: int, confined: Confined) -> None:
    with server(socket.AF_INET) as (_, port):

        def act() -> None:
            for _ in range(5):
                child = os.fork()
                if child == 0:
                    socket.socket().connect(("127.0.0.1", slow))
                    os._exit(0)
                os.sched_yield()
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
            opened(port).close()

        grants = [("connect", f"127.0.0.1:{number}") for number in (port, slow)]
        assert confined(act, *grants) == "allowed"


def test_two_hundred_connections_at_once(confined: Confined) -> None:
    assert MAX_WAITING >= 200
    with server(socket.AF_INET) as (own, port):

        def act() -> None:
            failures: list[object] = []

            def connect() -> None:
                try:
                    with opened(port) as client:
                        client.sendall(b"x")
                except OSError as error:
                    failures.append(error)

            threads = [threading.Thread(target=connect) for _ in range(200)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert not failures, failures

        assert confined(act, ("connect", f"127.0.0.1:{port}")) == "allowed"
        for _ in range(200):
            peer, _ = own.accept()
            assert peer.recv(10) == b"x"
            peer.close()


def full_pair() -> tuple[socket.socket, socket.socket]:
    """Return two ends, of which the first has no room to send any more."""
    end, other = socket.socketpair()
    end.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while True:
            end.send(bytes(4096))
    end.setblocking(True)
    return end, other


def test_what_waits_to_be_sent_is_not_kept_without_end(
    confined: Confined, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each call is copied into the broker; all that wait together have a limit."""
    much, many, room = 1 << 20, 8, 4
    monkeypatch.setattr(dialling, "MAX_CONTENT", room * much)
    said: list[str] = []

    def send(end: socket.socket) -> None:
        try:
            end.sendmsg([bytes(much)])
        except OSError as error:
            said.append(errno.errorcode[error.errno or 0])

    def act() -> None:
        pairs = [full_pair() for _ in range(many)]
        threads = [threading.Thread(target=send, args=(end,)) for end, _ in pairs]
        for each in threads:
            each.start()
        while len(said) < many - room:
            time.sleep(0.01)
        for (_, other), thread in zip(pairs, threads, strict=True):
            other.close()
            thread.join()
        assert said[: many - room] == ["ENOBUFS"] * (many - room)
        assert said[many - room :] == ["EPIPE"] * room

    assert confined(act, ("connect", "127.0.0.1:9")) == "allowed"
