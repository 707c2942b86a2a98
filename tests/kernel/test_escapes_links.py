"""A link of the command's choice leads to whoever has taken a judged address there."""

from __future__ import annotations

import os
import socket
import struct
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from kernel.conftest import Confined, Free

pytestmark = pytest.mark.needs("landlock", "seccomp")

LOOPBACK, NO_LINK = 1, 0
IP, IP6, SOCKET = socket.IPPROTO_IP, socket.IPPROTO_IPV6, socket.SOL_SOCKET
PKTINFO = 8  # of IPv4, for which Python has no name before 3.14
STREAM, DATAGRAM = socket.SOCK_STREAM, socket.SOCK_DGRAM
HERE6 = socket.inet_pton(socket.AF_INET6, "::1")
NUMBER, NETWORK_NUMBER = struct.pack("i", LOOPBACK), struct.pack("!i", LOOPBACK)
OPTIONS = {
    "SO_BINDTODEVICE": (STREAM, SOCKET, 25, b"lo"),
    "SO_BINDTODEVICE of datagrams": (DATAGRAM, SOCKET, 25, b"lo"),
    "SO_BINDTOIFINDEX": (STREAM, SOCKET, 62, NUMBER),
    "IP_UNICAST_IF": (DATAGRAM, IP, 50, NETWORK_NUMBER),
    "IPV6_UNICAST_IF": (DATAGRAM, IP6, 76, NETWORK_NUMBER),
    "IPV6_PKTINFO": (DATAGRAM, IP6, 50, HERE6 + NUMBER),
    "IPV6_2292PKTINFO": (DATAGRAM, IP6, 2, HERE6 + NUMBER),
}


def setting(kind: int, level: int, option: int, value: bytes) -> Callable[[], None]:
    family = socket.AF_INET6 if level == IP6 else socket.AF_INET

    def act() -> None:
        with socket.socket(family, kind) as own:
            own.setsockopt(level, option, value)

    return act


@pytest.mark.parametrize("name", OPTIONS)
def test_no_option_chooses_a_link(name: str, confined: Confined, free: Free) -> None:
    act = setting(*OPTIONS[name])
    assert confined(act, ("connect", "127.0.0.1:9")) == "EPERM"
    if "6" in name and not os.path.exists("/proc/net/if_inet6"):
        pytest.skip("the host has no IPv6")
    assert free(act) == "allowed"


def sending(family: int, link: int) -> Callable[[], None]:
    level, kind, where, content = (
        (IP, PKTINFO, "127.0.0.1", struct.pack("i4x4x", link))
        if family == socket.AF_INET
        else (IP6, socket.IPV6_PKTINFO, "::1", bytes(16) + struct.pack("i", link))
    )

    def act() -> None:
        with socket.socket(family, DATAGRAM) as own:
            own.sendmsg([b"x"], [(level, kind, content)], 0, (where, 9))

    return act


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_no_message_chooses_a_link(family: int, confined: Confined, free: Free) -> None:
    rules = ("connect", "127.0.0.1:9"), ("connect", "[::1]:9")
    assert confined(sending(family, LOOPBACK), *rules) == "EPERM"
    if family == socket.AF_INET6 and not os.path.exists("/proc/net/if_inet6"):
        pytest.skip("the host has no IPv6")
    assert confined(sending(family, NO_LINK), *rules) == "allowed"
    assert free(sending(family, LOOPBACK)) == "allowed"
