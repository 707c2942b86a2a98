"""Socket addresses as bytes of the kernel's interface, read into what rules speak of. Pure."""

from __future__ import annotations

from .record import Record

AF_UNIX, AF_INET, AF_INET6 = 1, 2, 10
MAX_SIZE = 128  # of struct sockaddr_storage
_INET_SIZE, _INET6_SIZE = 8, 24
_MAPPED = bytes(10) + b"\xff\xff"


class Internet(Record):
    """An address and a port; an IPv4 address inside an IPv6 one is that IPv4 address."""

    address: bytes
    port: int


class Name(Record):
    """A unix socket's path as the caller wrote it; abstract ones have no path."""

    path: bytes


def parse(raw: bytes) -> Internet | Name | None:
    """Read a socket address; None for one that no rule can be about."""
    family = int.from_bytes(raw[:2], "little")
    if family == AF_INET and len(raw) >= _INET_SIZE:
        return Internet(raw[4:8], int.from_bytes(raw[2:4], "big"))
    if family == AF_INET6 and len(raw) >= _INET6_SIZE:
        address = raw[8:24]
        unmapped = address[12:] if address.startswith(_MAPPED) else address
        return Internet(unmapped, int.from_bytes(raw[2:4], "big"))
    if family == AF_UNIX and raw[2:3] not in {b"", b"\0"}:
        return Name(raw[2:].split(b"\0", 1)[0])
    return None
