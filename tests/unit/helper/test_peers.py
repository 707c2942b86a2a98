from __future__ import annotations

import os
import socket
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from democrai_osguard_helper import notify
from democrai_osguard_helper.peers import Peer, PeerRefused, identify

if TYPE_CHECKING:
    from collections.abc import Callable


def test_a_peer_is_known_from_its_socket() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        peer = identify(ours)
        assert (peer.pid, peer.uid, peer.has_ended()) == (os.getpid(), os.getuid(), False)
        peer.check()
        peer.check_rights()
        with pytest.raises(PeerRefused) as caught:
            replace(peer, uid=peer.uid + 1).check_rights()
        assert caught.value.code == "rights_changed"
        peer.close()


def test_a_process_that_ended_is_refused_even_when_its_number_is_taken() -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    pidfd = os.pidfd_open(pid)
    os.waitpid(pid, 0)
    # The number is somebody else's now: ours, for the purpose of this test.
    peer = Peer(os.getpid(), os.getuid(), os.getgid(), pidfd)
    with pytest.raises(PeerRefused) as caught:
        peer.check()
    peer.close()
    assert caught.value.code == "peer_gone"


def test_a_connection_whose_opener_is_gone_has_no_peer() -> None:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(f"\0osguard-test-{os.getpid()}")
    listener.listen()
    pid = os.fork()
    if pid == 0:
        socket.socket(socket.AF_UNIX).connect(listener.getsockname())
        os._exit(0)
    os.waitpid(pid, 0)
    stream, _ = listener.accept()
    with stream, listener, pytest.raises(PeerRefused) as caught:
        identify(stream)
    assert caught.value.code == "peer_gone"


def test_sockets_of_the_manager_count_only_for_the_process_that_they_are_meant_for() -> None:
    mine = {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "1", "WATCHDOG_USEC": "30000000"}
    assert notify.from_environment(mine) == notify.Manager(None, 30.0, 1)
    others = {**mine, "LISTEN_PID": "1", "WATCHDOG_USEC": "soon"}
    assert notify.from_environment(others) == notify.Manager(None, None, 0)


def test_the_manager_hears_what_it_is_told() -> None:
    ear = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    name = f"osguard-notify-{os.getpid()}"
    ear.bind(f"\0{name}")
    notify.Manager(f"@{name}").tell("READY=1")
    with ear:
        assert ear.recv(100) == b"READY=1"


@pytest.mark.parametrize("wrong", ["a file", "tcp", "not listening"])
def test_another_kind_of_socket_of_the_manager_is_refused_at_the_start(
    wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: dict[str, Callable[[], Any]] = {
        "a file": lambda: open(os.devnull, "rb"),  # noqa: SIM115 - entered below
        "tcp": lambda: socket.create_server(("127.0.0.1", 0)),
        "not listening": lambda: socket.socket(socket.AF_UNIX),
    }
    with made[wrong]() as handed:
        monkeypatch.setattr(notify, "FIRST_DESCRIPTOR", os.dup(handed.fileno()))
    with pytest.raises(OSError):  # noqa: PT011 - which one depends on what it is
        notify.Manager(sockets=1).listener()
    if wrong == "a file":
        os.close(notify.FIRST_DESCRIPTOR)
