"""Ways to talk to somebody."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from .ground import Technique, World


def tcp(family: int, address: str) -> Callable[[World], object]:
    return lambda w: socket.socket(family).connect((address, w.tcp))


def udp(w: World) -> None:
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", w.udp))


def mptcp(w: World) -> None:
    socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262).connect(("127.0.0.1", w.tcp))


def fast_open(w: World) -> None:
    flag = 0x20000000
    socket.socket(socket.AF_INET).sendto(b"x", flag, ("127.0.0.1", w.tcp))


def make_socket(family: int, kind: int, protocol: int = 0) -> Callable[[World], object]:
    return lambda _: socket.socket(family, kind, protocol)


def unix_path(w: World) -> None:
    socket.socket(socket.AF_UNIX).connect(str(w.outside / "socket"))


def unix_datagram(w: World) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as client:
        client.sendto(b"x", str(w.outside / "datagram"))


def unix_pair(w: World) -> None:
    ours, _theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    ours.sendto(b"x", str(w.outside / "datagram"))


def unix_abstract(w: World) -> None:
    socket.socket(socket.AF_UNIX).connect(f"\0democrai-{w.victim}")


SOCKETS: dict[str, Technique] = {
    "connect to IPv4": (tcp(socket.AF_INET, "127.0.0.1"), True),
    "connect to IPv6": (tcp(socket.AF_INET6, "::1"), True),
    "connect to a mapped address": (tcp(socket.AF_INET6, "::ffff:127.0.0.1"), True),
    "connect with MPTCP": (mptcp, True),
    "connect while sending": (fast_open, True),
    "send a datagram": (udp, True),
    "netlink route socket": (make_socket(16, socket.SOCK_RAW, 0), True),
    "netlink audit socket": (make_socket(16, socket.SOCK_RAW, 9), True),
    "raw socket": (make_socket(socket.AF_INET, socket.SOCK_RAW, 1), False),
    "packet socket": (make_socket(17, socket.SOCK_RAW), False),
    "alg socket": (make_socket(38, 5), True),
    "vsock socket": (make_socket(40, socket.SOCK_STREAM), True),
    "connect to a unix socket": (unix_path, True),
    "send to a unix socket": (unix_datagram, True),
    "send to a unix socket from one of a pair": (unix_pair, True),
    "connect to an abstract socket": (unix_abstract, True),
}
