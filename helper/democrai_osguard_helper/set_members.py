"""What the sets of this network namespace hold, asked of the kernel itself.

The program `ipset` looks the name of a protocol up for every member that it prints, which takes a
second for twenty thousand; a daemon that looks every few seconds has no such time. Nothing is
written here: sets are changed through `ipset` alone.
"""

from __future__ import annotations

import functools
import os
import socket
import struct
from typing import TYPE_CHECKING, Final

from .endpoints import Network

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_NETFILTER: Final = 12  # NETLINK_NETFILTER
_LIST: Final = 6 << 8 | 7  # NFNL_SUBSYS_IPSET, IPSET_CMD_LIST
_REQUEST_DUMP: Final = 0x301
_ERROR, _DONE = 2, 3
_PROTOCOL_VERSION: Final = 6  # what every kernel still speaks
_VERSION, _NAME, _MEMBERS = 1, 2, 8  # attributes of a set
_ADDRESS, _PREFIX, _PORT, _PROTOCOL, _LINE = 1, 3, 4, 7, 9  # attributes of a member
_KIND: Final = 0x3FFF  # without the marks of nesting and byte order
_WORDS: Final = {socket.IPPROTO_TCP: "tcp", socket.IPPROTO_UDP: "udp"}
_ATTRIBUTE: Final = struct.Struct("=HH")
_HEADER: Final = struct.Struct("=IHHII")
_FAMILY_HEADER: Final = bytes(4)  # struct nfgenmsg
_BUFFER: Final = 256 * 1024
_REMEMBERED: Final = 1 << 17  # members that need not be read anew at each look


def read(is_wanted: Callable[[str], bool]) -> dict[str, frozenset[str]]:
    """Return the members of each wanted set, in the words of `firewall_plan.entries`."""
    found: dict[str, set[str]] = {}
    for body in _answers():
        attributes = dict(_attributes(body[len(_FAMILY_HEADER) :]))
        name = attributes[_NAME].rstrip(b"\0").decode("ascii", "replace")
        if is_wanted(name):  # a large set comes in several pieces
            members = _attributes(attributes.get(_MEMBERS, b""))
            found.setdefault(name, set()).update(_word(member) for _, member in members)
    return {name: frozenset(words) for name, words in found.items()}


def _answers() -> Iterator[bytes]:
    attribute = struct.pack("=HHB3x", 5, _VERSION, _PROTOCOL_VERSION)
    body = _FAMILY_HEADER + attribute
    kind = socket.SOCK_RAW | socket.SOCK_CLOEXEC
    with socket.socket(socket.AF_NETLINK, kind, _NETFILTER) as netlink:
        netlink.send(_HEADER.pack(_HEADER.size + len(body), _LIST, _REQUEST_DUMP, 0, 0) + body)
        while True:
            data = netlink.recv(_BUFFER)
            place = 0
            while place < len(data):
                size, answer, _, _, _ = _HEADER.unpack_from(data, place)
                if answer in {_DONE, _ERROR}:
                    _check(data[place + _HEADER.size : place + size])
                    return
                yield data[place + _HEADER.size : place + size]
                place += (size + 3) & ~3


def _check(body: bytes) -> None:
    code = -int(struct.unpack_from("=i", body)[0])
    if code:
        raise OSError(code, os.strerror(code), "ipset")


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    place, end = 0, len(data)
    while place < end:
        size, kind = _ATTRIBUTE.unpack_from(data, place)
        yield kind & _KIND, data[place + 4 : place + size]
        place += (size + 3) & ~3


@functools.lru_cache(maxsize=_REMEMBERED)
def _word(data: bytes) -> str:
    """Return a member as text; what we never write makes another word of it."""
    member = dict(_attributes(data))
    packed = member[_ADDRESS][4:]  # an attribute within: its head says the family, as its size does
    prefix = member[_PREFIX][0] if _PREFIX in member else len(packed) * 8
    text = str(Network(packed, prefix))
    if _PORT in member:
        number = member.get(_PROTOCOL, b"\0")[0]
        text += f",{_WORDS.get(number, number)}:{int.from_bytes(member[_PORT][:2], 'big')}"
    strange = member.keys() - {_ADDRESS, _PREFIX, _PORT, _PROTOCOL, _LINE}
    return text + "".join(f" {kind}" for kind in sorted(strange))
