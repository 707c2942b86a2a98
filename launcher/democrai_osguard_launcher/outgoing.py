"""What a caller sends, copied out of its memory once, with limits."""

from __future__ import annotations

import errno
import os
import struct

from .peers import AF_INET, AF_INET6, AF_UNIX, MAX_ADDRESS
from .record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .caller import Call
    from .held_socket import HeldSocket

MAX_CONTENT = 1 << 20  # of one message; a stream takes the rest with the next call
MAX_PIECES = 1024
MAX_CONTROL = 4096
MAX_MESSAGES = 64  # of one sendmmsg; the rest comes with the next call
MANY_SIZE, LENGTH_PLACE = 64, 56  # of struct mmsghdr, and where its count is
_HEADER = struct.Struct("=QI4xQQQQ")  # name, its length, pieces, how many, control, its length
_PIECE = struct.Struct("=QQ")
_CONTROL = struct.Struct("=QII")
_SOCKET_LEVEL, _RIGHTS = 1, 1
_ALIGNED = 8
# What a datagram may say of itself: none of these changes whom it reaches.
_PLAIN = {
    AF_INET: {(0, 1), (0, 2), (0, 8), (17, 103)},  # TOS, TTL, PKTINFO, UDP_SEGMENT
    AF_INET6: {(0, 1), (0, 2), (0, 8), (41, 50), (41, 52), (41, 67), (17, 103)},
}
# IP_PKTINFO and IPV6_PKTINFO, and where in them the number of a link is: with another than none the
# kernel looks for the address among that link's neighbours.
_LINKS = {(0, 8): slice(0, 4), (41, 50): slice(16, 20)}
_NOTHING = slice(0)
# DONTWAIT, OOB, DONTROUTE, EOR, CONFIRM, NOSIGNAL, MORE.
_FLAGS = 0x40 | 0x1 | 0x4 | 0x80 | 0x800 | 0x4000 | 0x8000
DONTWAIT, NOSIGNAL = 0x40, 0x4000


class Message(Record):
    """One message: to whom, if it says so, what, and what goes with it."""

    address: bytes
    content: bytes
    control: bytes
    is_whole: bool


def sent_to(call: Call) -> Message:
    """Read the message of a sendto."""
    size = call.arguments[2]
    content = _read(call, call.arguments[1], min(size, MAX_CONTENT))
    address = address_at(call, call.arguments[4], call.integer(5))
    return Message(address, content, b"", size <= MAX_CONTENT)


def message_at(call: Call, place: int) -> Message:
    """Read a struct msghdr and what it points to."""
    header = _HEADER.unpack(_read(call, place, _HEADER.size))
    name, length, pieces, count, control, control_size = header
    if count > MAX_PIECES:
        raise _error(errno.EMSGSIZE)
    if control_size > MAX_CONTROL:
        raise _error(errno.ENOBUFS)
    content, is_whole = _gathered(call, pieces, count)
    return Message(
        address_at(call, name, length) if name else b"",
        content,
        _read(call, control, control_size) if control else b"",
        is_whole,
    )


def address_at(call: Call, place: int, length: int) -> bytes:
    """Read a socket address; raise OSError for a length that none has."""
    if not 0 <= length <= MAX_ADDRESS:
        raise _error(errno.EINVAL)
    return _read(call, place, length)


def flags_of(value: int) -> int:
    """Return the flags to send with; raise OSError for one that the broker does not know."""
    if value & ~_FLAGS & 0xFFFFFFFF:
        raise _error(errno.EOPNOTSUPP)
    return value & 0xFFFFFFFF | DONTWAIT | NOSIGNAL


class Control:
    """Control messages, rebuilt: descriptors become our copies of them, to be closed."""

    def __init__(self, held: HeldSocket, control: bytes, take: Callable[[int], int]) -> None:
        self._copies: list[int] = []
        self.raw = b""
        try:
            for level, kind, data in _control_messages(control):
                self._add(held.family, (level, kind), data, take)
        except BaseException:
            self.close()
            raise

    @property
    def has_descriptors(self) -> bool:
        """Tell whether there is any descriptor among them."""
        return bool(self._copies)

    def close(self) -> None:
        """Let go of the copies."""
        for copy in self._copies:
            os.close(copy)
        self._copies.clear()

    def _add(
        self, family: int, kind: tuple[int, int], data: bytes, take: Callable[[int], int]
    ) -> None:
        if family == AF_UNIX and kind == (_SOCKET_LEVEL, _RIGHTS):
            numbers = [int(number) for (number,) in struct.iter_unpack("=i", data)]
            start = len(self._copies)
            for number in numbers:
                self._copies.append(take(number))
            data = struct.pack(f"={len(numbers)}i", *self._copies[start:])
        elif kind not in _PLAIN.get(family, set()) or any(data[_LINKS.get(kind, _NOTHING)]):
            raise _error(errno.EPERM)
        self.raw += _CONTROL.pack(_CONTROL.size + len(data), *kind) + data
        self.raw += bytes(-len(self.raw) % _ALIGNED)


def _control_messages(control: bytes) -> Iterator[tuple[int, int, bytes]]:
    place = 0
    while place + _CONTROL.size <= len(control):
        size, level, kind = _CONTROL.unpack_from(control, place)
        if not _CONTROL.size <= size <= len(control) - place:
            raise _error(errno.EINVAL)
        data = control[place + _CONTROL.size : place + size]
        if (level, kind) == (_SOCKET_LEVEL, _RIGHTS) and len(data) % 4:
            raise _error(errno.EINVAL)
        yield level, kind, data
        place += size + -size % _ALIGNED


def _gathered(call: Call, pieces: int, count: int) -> tuple[bytes, bool]:
    found, room = [], MAX_CONTENT
    table = _read(call, pieces, count * _PIECE.size)
    for place, size in _PIECE.iter_unpack(table):
        found.append(_read(call, place, min(size, room)))
        if size > room:
            return b"".join(found), False
        room -= size
    return b"".join(found), True


def _read(call: Call, place: int, size: int) -> bytes:
    if not size:
        return b""
    found = call.memory(place, size)
    if len(found) < size:
        raise _error(errno.EFAULT)
    return found


def _error(code: int) -> OSError:
    return OSError(code, os.strerror(code))
