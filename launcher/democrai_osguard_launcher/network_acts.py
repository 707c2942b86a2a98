"""What a waiting call would do on the network: whom it would reach, and what it says there.

For explaining and learning only, like `acts`.
"""

from __future__ import annotations

import ipaddress
import struct

from . import addresses
from .record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from .caller import Call

DNS = 53
_MESSAGE = struct.Struct("=QI4xQQ")  # address, its length, buffers, how many
_BUFFER = struct.Struct("=QQ")
_MANY_SIZE = 64  # of struct mmsghdr
_MOST_MESSAGES = 16
_LOOKED_AT = 512  # bytes of what is sent: a question to a name server, the head of a request
_QUESTION = 12  # a DNS header
_LONGEST_LABEL = 63
_RECEIVING = (b"GET ", b"HEAD ", b"OPTIONS ")
_SENDING = (b"POST ", b"PUT ", b"PATCH ", b"DELETE ")


class Datum(Record):
    """One message of a call: to whom, if it says so, and how it begins."""

    address: bytes
    content: bytes


class Reach(Record):
    """A peer that a call leads to."""

    host: str
    port: int


def peer(raw: bytes) -> Reach | None:
    """Return whom a socket address means; None where that is nobody on a network."""
    found = addresses.parse(raw)
    if not isinstance(found, addresses.Internet):
        return None
    return Reach(str(ipaddress.ip_address(found.address)), found.port)


def messages(name: str, call: Call) -> tuple[Datum, ...]:
    """Return what a call would send; nothing for a call that does not send."""
    find = _FINDERS.get(name)
    try:
        return tuple(find(call)) if find else ()
    except OSError:
        return ()


def direction(content: bytes) -> str | None:
    """Return `receive` or `send` where the bytes begin a request in plain HTTP."""
    if content.startswith(_RECEIVING):
        return "receive"
    return "send" if content.startswith(_SENDING) else None


def question(content: bytes) -> str | None:
    """Return the name that a question to a name server asks for."""
    labels: list[str] = []
    place = _QUESTION
    while place < len(content) and content[place]:
        length = content[place]
        label = content[place + 1 : place + 1 + length]
        if length > _LONGEST_LABEL or len(label) < length:
            return None
        labels.append(label.decode("ascii", "replace").lower())
        place += 1 + length
    return ".".join(labels) or None


def _connecting(call: Call) -> Iterator[Datum]:
    yield Datum(_address(call, call.arguments[1], call.arguments[2]), b"")


def _sending(call: Call) -> Iterator[Datum]:
    content = _bytes(call, call.arguments[1], call.arguments[2])
    yield Datum(_address(call, call.arguments[4], call.arguments[5]), content)


def _message(call: Call, at: int) -> Datum:
    address, length, buffers, count = _MESSAGE.unpack(call.memory(at, _MESSAGE.size))
    content = b""
    if count:
        content = _bytes(call, *_BUFFER.unpack(call.memory(buffers, _BUFFER.size)))
    return Datum(_address(call, address, length), content)


def _many(call: Call) -> Iterator[Datum]:
    for place in range(min(call.arguments[2], _MOST_MESSAGES)):
        yield _message(call, call.arguments[1] + place * _MANY_SIZE)


def _address(call: Call, at: int, length: int) -> bytes:
    length &= 0xFFFFFFFF
    return call.memory(at, min(length, addresses.MAX_SIZE)) if at and length else b""


def _bytes(call: Call, at: int, length: int) -> bytes:
    return call.memory(at, min(length, _LOOKED_AT)) if length else b""


_FINDERS: Mapping[str, Callable[[Call], Iterator[Datum]]] = {
    "connect": _connecting,
    "sendto": _sending,
    "sendmsg": lambda call: iter((_message(call, call.arguments[1]),)),
    "sendmmsg": _many,
}
