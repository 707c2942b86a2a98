"""Open sockets of a cgroup, through sock_diag: which there are, and ending them.

The kernel looks in the network namespace of the helper only; sockets elsewhere cannot be ended,
but their packets are still refused.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

_SOCK_DIAG: Final = 4
_NAMESPACE: Final = 71  # SO_NETNS_COOKIE
_BY_FAMILY, _DESTROY = 20, 21
_REQUEST, _ACK, _DUMP = 0x1, 0x4, 0x300
_ERROR, _DONE = 2, 3
_BYTECODE: Final = 1  # INET_DIAG_REQ_BYTECODE
_CGROUP_CONDITION: Final = 13  # INET_DIAG_BC_CGROUP_COND
_ALL_STATES: Final = 0xFFFFFFFF
_ESTABLISHED, _LISTEN = 1, 10
_CLOSE, _TIME_WAIT = 7, 6
_NUMBERS: Final = {"tcp": socket.IPPROTO_TCP, "udp": socket.IPPROTO_UDP}
_FAMILIES: Final = (socket.AF_INET, socket.AF_INET6)
_IDENTITY: Final = struct.Struct("=2s2s16s16sI8s")
_HEADER: Final = struct.Struct("=IHHII")
_MAPPED: Final = bytes(10) + b"\xff\xff"
_BUFFER: Final = 256 * 1024


@dataclass(frozen=True, slots=True)
class Open:
    """A socket: its two ends, and how the kernel calls it."""

    family: int
    protocol: str
    state: int
    identity: bytes
    local: bytes
    local_port: int
    remote: bytes
    remote_port: int
    cookie: int

    @property
    def is_listening(self) -> bool:
        """Tell whether it waits for connections."""
        return self.protocol == "tcp" and self.state == _LISTEN

    @property
    def is_connected(self) -> bool:
        """Tell whether it has another end that packets may still go to."""
        return self.state not in {_CLOSE, _LISTEN, _TIME_WAIT}

    @property
    def is_loopback(self) -> bool:
        """Tell whether the other end is a loopback address."""
        return self.remote[:1] == b"\x7f" if len(self.remote) == 4 else self.remote == _V6_LOOPBACK  # noqa: PLR2004


_V6_LOOPBACK: Final = bytes(15) + b"\1"


def of_cgroup(identity: int, protocol: str) -> list[Open]:
    """Return the sockets of exactly this cgroup."""
    found: list[Open] = []
    for family in _FAMILIES:
        with _netlink() as netlink:
            netlink.send(_dump_request(family, protocol, identity))
            found += [_open(body, protocol) for body in _answers(netlink)]
    return found


def destroy(item: Open) -> bool:
    """End one socket; tell whether it was there. Its owner sees ECONNABORTED."""
    head = struct.pack("=BBBxI", item.family, _NUMBERS[item.protocol], 0, _ALL_STATES)
    with _netlink() as netlink:
        netlink.send(_message(_DESTROY, _REQUEST | _ACK, head + item.identity))
        data = netlink.recv(_BUFFER)
    code = int(struct.unpack_from("=i", data, _HEADER.size)[0])
    if code in {0, -errno.ENOENT}:
        return code == 0
    raise OSError(-code, os.strerror(-code), "sock_destroy")


def namespace() -> int:
    """Return the kernel's number for the network namespace that we are in."""
    with _netlink() as any_socket:
        return int.from_bytes(any_socket.getsockopt(socket.SOL_SOCKET, _NAMESPACE, 8), "little")


def _netlink() -> socket.socket:
    return socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _SOCK_DIAG)


def _dump_request(family: int, protocol: str, identity: int) -> bytes:
    # One condition; "no" jumps four bytes past the end, which means: leave this socket out.
    code = struct.pack("=BBHQ", _CGROUP_CONDITION, 12, 16, identity)
    attribute = struct.pack("=HH", 4 + len(code), _BYTECODE) + code
    head = struct.pack("=BBBxI", family, _NUMBERS[protocol], 0, _ALL_STATES)
    return _message(_BY_FAMILY, _REQUEST | _DUMP, head + bytes(_IDENTITY.size) + attribute)


def _message(kind: int, flags: int, body: bytes) -> bytes:
    return _HEADER.pack(_HEADER.size + len(body), kind, flags, 0, 0) + body


def _answers(netlink: socket.socket) -> Iterator[bytes]:
    while True:
        data = netlink.recv(_BUFFER)
        place = 0
        while place < len(data):
            size, kind, _, _, _ = _HEADER.unpack_from(data, place)
            body = data[place + _HEADER.size : place + size]
            if kind == _DONE:
                return
            if kind == _ERROR:
                (code,) = struct.unpack_from("=i", body)
                raise OSError(-code, os.strerror(-code), "sock_diag")
            yield body
            place += (size + 3) & ~3


def _open(body: bytes, protocol: str) -> Open:
    family, state = body[0], body[1]
    identity = body[4 : 4 + _IDENTITY.size]
    sport, dport, source, target, _, cookie = _IDENTITY.unpack(identity)
    return Open(
        *(family, protocol, state, identity),
        *(_address(family, source), int.from_bytes(sport, "big")),
        *(_address(family, target), int.from_bytes(dport, "big")),
        int.from_bytes(cookie, "little"),
    )


def _address(family: int, packed: bytes) -> bytes:
    if family == socket.AF_INET:
        return packed[:4]
    return packed[12:] if packed.startswith(_MAPPED) else packed
