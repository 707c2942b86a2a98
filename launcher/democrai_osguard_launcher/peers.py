"""Whom a socket address means: rebuilt from what was read, so that what is judged is dialled. Pure.

The kernel takes more than one writing for the same peer: IPv4 inside IPv6, and "any" for this very
machine. Here each peer has one.
"""

from __future__ import annotations

import errno
import os

from .record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

AF_UNSPEC, AF_UNIX, AF_INET, AF_INET6, AF_NETLINK = 0, 1, 2, 10, 16
MAX_ADDRESS = 128  # struct sockaddr_storage
_INET_SIZE, _INET6_SIZE, _INET6_SHORT = 16, 28, 24
_UNIX_SIZE = 110
_NETLINK_SIZE = 12
_MAPPED = bytes(10) + b"\xff\xff"
_ANY4, _ANY6 = bytes(4), bytes(16)
_OWN4, _OWN6 = b"\x7f\0\0\1", bytes(15) + b"\1"


class Internet(Record):
    """An address of four or sixteen bytes and a port, and the bytes to dial."""

    address: bytes
    port: int
    raw: bytes


class Path(Record):
    """A unix socket with a path, as the caller wrote it."""

    path: bytes


class Netlink(Record):
    """The kernel itself, or a group of its listeners."""

    raw: bytes


class Nobody(Record):
    """No peer: a socket that is connected to this one is connected no more."""

    raw: bytes = bytes(16)


def read(raw: bytes) -> Internet | Path | Netlink | Nobody:
    """Return whom the address means; raise OSError for one that is malformed or never allowed."""
    if not 2 <= len(raw) <= MAX_ADDRESS:  # noqa: PLR2004 - the family
        raise _error(errno.EINVAL)
    family = int.from_bytes(raw[:2], "little")
    read_family = _READERS.get(family)
    if read_family is None:
        raise _error(errno.EAFNOSUPPORT)
    return read_family(raw)


def _internet(raw: bytes) -> Internet:
    if len(raw) < _INET_SIZE:
        raise _error(errno.EINVAL)
    address = _OWN4 if raw[4:8] == _ANY4 else raw[4:8]
    return Internet(address, int.from_bytes(raw[2:4], "big"), raw[:4] + address + bytes(8))


def _internet6(raw: bytes) -> Internet:
    if len(raw) < _INET6_SHORT:
        raise _error(errno.EINVAL)
    address = _OWN6 if raw[8:24] == _ANY6 else raw[8:24]
    if address.startswith(_MAPPED):
        address = _MAPPED + (_OWN4 if address[12:] == _ANY4 else address[12:])
    scope = raw[24:28] if len(raw) >= _INET6_SIZE else bytes(4)
    whole = raw[:4] + bytes(4) + address + scope
    return Internet(unmapped(address), int.from_bytes(raw[2:4], "big"), whole)


def unmapped(address: bytes) -> bytes:
    """Return the IPv4 address that an IPv6 one stands for, or the address itself."""
    return address[12:] if len(address) == len(_ANY6) and address.startswith(_MAPPED) else address


def _unix(raw: bytes) -> Path:
    if len(raw) > _UNIX_SIZE or len(raw) == 2:  # noqa: PLR2004 - the family and no name
        raise _error(errno.EINVAL)
    if raw[2] == 0:  # an abstract one: who listens there nobody can tell
        raise _error(errno.EPERM)
    return Path(raw[2:].split(b"\0", 1)[0])


def _netlink(raw: bytes) -> Netlink:
    if len(raw) < _NETLINK_SIZE:
        raise _error(errno.EINVAL)
    return Netlink(raw[:_NETLINK_SIZE])


def _error(code: int) -> OSError:
    return OSError(code, os.strerror(code))


_READERS: dict[int, Callable[[bytes], Internet | Path | Netlink | Nobody]] = {
    AF_UNSPEC: lambda _raw: Nobody(),
    AF_UNIX: _unix,
    AF_INET: _internet,
    AF_INET6: _internet6,
    AF_NETLINK: _netlink,
}
