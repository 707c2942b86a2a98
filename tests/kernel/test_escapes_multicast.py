"""Joining a group makes the kernel send packets that no rule was asked about."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from kernel.conftest import Confined, Free

pytestmark = pytest.mark.needs("landlock", "seccomp")

GROUP, SOURCE, HERE = map(socket.inet_aton, ("239.108.101.97", "10.9.9.2", "127.0.0.1"))
GROUP6 = socket.inet_pton(socket.AF_INET6, "ff02::1:7")
INCLUDE, EXCLUDE, LOOPBACK = 1, 0, 1
IP, IP6 = socket.IPPROTO_IP, socket.IPPROTO_IPV6
JOINED = IP, 35, GROUP + HERE
JOINED6 = IP6, 20, GROUP6 + struct.pack("i", LOOPBACK)


def address(packed: bytes) -> bytes:
    """Return it as a sockaddr_storage."""
    if len(packed) == len(HERE):
        return struct.pack("HH4s120x", socket.AF_INET, 0, packed)
    return struct.pack("HHI16sI100x", socket.AF_INET6, 0, 0, packed, 0)


def group(packed: bytes, *more: bytes) -> bytes:
    return struct.pack("I4x", LOOPBACK) + address(packed) + b"".join(more)


Option = tuple[int, int, bytes]
NOBODY = struct.pack("II", INCLUDE, 0)
# What is asked for, and what the kernel wants to be done before.
OPTIONS: dict[str, tuple[Option, Option | None]] = {
    "IP_ADD_MEMBERSHIP": (JOINED, None),
    "IP_ADD_SOURCE_MEMBERSHIP": ((IP, 39, GROUP + HERE + SOURCE), None),
    "IP_BLOCK_SOURCE": ((IP, 38, GROUP + HERE + SOURCE), JOINED),
    "IP_MSFILTER": ((IP, 41, GROUP + HERE + NOBODY), JOINED),
    "MCAST_JOIN_GROUP": ((IP, 42, group(GROUP)), None),
    "MCAST_BLOCK_SOURCE": ((IP, 43, group(GROUP, address(SOURCE))), JOINED),
    "MCAST_JOIN_SOURCE_GROUP": ((IP, 46, group(GROUP, address(SOURCE))), None),
    "MCAST_MSFILTER": ((IP, 48, group(GROUP, NOBODY)), JOINED),
    "IPV6_ADD_MEMBERSHIP": (JOINED6, None),
    "MCAST_JOIN_GROUP of IPv6": ((IP6, 42, group(GROUP6)), None),
    "MCAST_JOIN_SOURCE_GROUP of IPv6": ((IP6, 46, group(GROUP6, address(GROUP6))), None),
    "MCAST_MSFILTER of IPv6": ((IP6, 48, group(GROUP6, NOBODY)), JOINED6),
}


def asking(option: Option, before: Option | None) -> Callable[[], None]:
    family = socket.AF_INET6 if option[0] == IP6 else socket.AF_INET

    def act() -> None:
        with socket.socket(family, socket.SOCK_DGRAM) as own:
            if before:
                with contextlib.suppress(PermissionError):
                    own.setsockopt(*before)
            own.setsockopt(*option)

    return act


@pytest.mark.parametrize("name", OPTIONS)
def test_no_rule_lets_a_socket_join_a_group(name: str, confined: Confined, free: Free) -> None:
    act = asking(*OPTIONS[name])
    assert confined(act, ("connect", "127.0.0.1:9")) == "EPERM"
    if "6" in name and not os.path.exists("/proc/net/if_inet6"):
        pytest.skip("the host has no IPv6")
    assert free(act) == "allowed"
