"""Messages that the broker judges and sends: where each goes, and what goes with it."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import struct
import threading
from typing import TYPE_CHECKING

import pytest
from kernel.loopback import FAMILIES, LOOPBACK, address_of, place, server
from kernel.techniques import LIBC

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kernel.conftest import Action, Confined, Free

pytestmark = pytest.mark.needs("landlock", "landlock-tcp", "seccomp")

MSG_FASTOPEN = 0x20000000
SENDS: dict[str, Callable[[socket.socket, tuple[str, int]], object]] = {
    "sendto": lambda own, to: own.sendto(b"hello", to),
    "sendmsg": lambda own, to: own.sendmsg([b"he", b"llo"], [], 0, to),
    "sendmsg that says its type of service": lambda own, to: own.sendmsg(
        [b"hello"], [(socket.IPPROTO_IP, socket.IP_TOS, struct.pack("i", 4))], 0, to
    ),
}


@pytest.mark.parametrize("way", SENDS)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_datagram_goes_where_a_rule_leads(
    way: str, family: int, free: Free, confined: Confined
) -> None:
    udp = socket.SOCK_DGRAM

    def send(port: int) -> Action:
        return lambda: SENDS[way](socket.socket(family, udp), (LOOPBACK[family], port))

    with server(family, udp) as (own, port), server(family, udp) as (_, other):
        if "type" in way and family == socket.AF_INET6:
            return
        rule = ("connect", place(family, port))
        assert confined(send(port), rule) == "allowed"
        assert own.recv(100) == b"hello"
        assert confined(send(other), rule) == "EACCES"
        assert free(send(other)) == "allowed"


def test_many_messages_in_one_call_are_each_judged(confined: Confined) -> None:
    udp = socket.SOCK_DGRAM
    with server(socket.AF_INET, udp) as (own, port), server(socket.AF_INET, udp) as (other, closed):

        def act() -> None:
            texts = [ctypes.create_string_buffer(b"m%d" % each) for each in range(3)]
            places = [address_of(each) for each in (port, port, closed)]
            names = [ctypes.create_string_buffer(each) for each in places]
            pieces = [(ctypes.c_uint64 * 2)(ctypes.addressof(each), 2) for each in texts]
            many = (ctypes.c_uint64 * 24)()
            for each in range(3):
                start = each * 8
                many[start : start + 4] = [
                    ctypes.addressof(names[each]), 16, ctypes.addressof(pieces[each]), 1
                ]  # fmt: skip
            client = socket.socket(socket.AF_INET, udp)
            assert LIBC.sendmmsg(client.fileno(), ctypes.byref(many), 3, 0) == 2
            assert [many[each * 8 + 7] & 0xFFFFFFFF for each in range(3)] == [2, 2, 0]

        assert confined(act, ("connect", f"127.0.0.1:{port}")) == "allowed"
        assert (own.recv(10), own.recv(10)) == (b"m0", b"m1")
        other.setblocking(False)
        with pytest.raises(BlockingIOError):
            other.recv(10)


def test_streams_and_pairs_send_as_ever(free: Free, confined: Confined, tmp_path: Path) -> None:
    """What has no address takes the same way: much at once, descriptors, a broken pipe."""
    (tmp_path / "file").write_text("seen")

    def act() -> None:
        left, right = socket.socketpair()
        socket.send_fds(left, [b"x"], [os.open(tmp_path / "file", os.O_RDONLY)])
        _, (received,), _, _ = socket.recv_fds(right, 10, 4)
        assert os.read(received, 10) == b"seen"
        much = b"y" * 3_000_000
        reader = threading.Thread(target=_drain, args=(right, len(much)))
        reader.start()
        sent = 0
        while sent < len(much):
            sent += left.sendmsg([much[sent:]])
        reader.join()
        right.close()
        with pytest.raises(BrokenPipeError):
            left.sendmsg([b"x"])
        broken, end = socket.socketpair()
        end.close()
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)
            broken.sendmsg([b"x"])
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGPIPE

    assert free(act) == "allowed"
    assert confined(act, ("connect", "127.0.0.1:80"), ("read", tmp_path)) == "allowed"


def _drain(end: socket.socket, size: int) -> None:
    while size:
        size -= len(end.recv(65536))


def test_no_message_says_another_way(confined: Confined, free: Free) -> None:
    """Options of a packet could send it elsewhere first; nobody who is confined sets them."""
    udp = socket.SOCK_DGRAM
    loose = b"\x83\x07\x04" + socket.inet_aton("127.0.0.2") + b"\0"  # a loose source route
    with server(socket.AF_INET, udp) as (_, port):
        to = ("127.0.0.1", port)

        def by_message() -> None:
            socket.socket(socket.AF_INET, udp).sendmsg(
                [b"x"], [(socket.IPPROTO_IP, socket.IP_RETOPTS, loose)], 0, to
            )

        def by_option() -> None:
            own = socket.socket(socket.AF_INET, udp)
            own.setsockopt(socket.IPPROTO_IP, socket.IP_OPTIONS, loose)

        rule = ("connect", f"127.0.0.1:{port}")
        for act in (by_message, by_option):
            assert confined(act, rule) == "EPERM"
        # Of an ordinary user the kernel takes no source route anyway.
        assert free(by_option) == ("allowed" if os.geteuid() == 0 else "EPERM")


def test_sending_while_connecting_stays_refused(confined: Confined, free: Free) -> None:
    with server(socket.AF_INET) as (_, port):

        def act() -> None:
            socket.socket().sendto(b"x", MSG_FASTOPEN, ("127.0.0.1", port))

        assert confined(act, ("connect", f"127.0.0.1:{port}")) == "EPERM"
        assert free(act) == "allowed"
