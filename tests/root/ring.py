"""One connect or send through io_uring, with bare system calls: enough to show who judges it."""

from __future__ import annotations

import ctypes
import mmap
import os
import socket
import struct
from typing import Final

_SETUP, _ENTER = 425, 426  # the same numbers on every architecture
_OP_SENDMSG, _OP_CONNECT = 9, 16
_GETEVENTS: Final = 1
_PARAMS: Final = 120
_SQ_RING, _SQES = 0, 0x10000000
_libc = ctypes.CDLL(None, use_errno=True)


def _call(*words: object) -> int:
    result = int(_libc.syscall(*words))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def connect(talk: socket.socket, address: str, port: int) -> None:
    """Connect a blocking socket; raise OSError with what the completion said."""
    name = _sockaddr(address, port)
    buffer = ctypes.create_string_buffer(name, len(name))
    # addr2 (the offset field) holds the length of the address.
    _through_a_ring(_OP_CONNECT, talk, len(name), ctypes.addressof(buffer), 0)


def send_to(talk: socket.socket, data: bytes, address: str, port: int) -> None:
    """Send one datagram; raise OSError with what the completion said."""
    name = _sockaddr(address, port)
    place = ctypes.create_string_buffer(name, len(name))
    words = ctypes.create_string_buffer(data, len(data))
    vector = ctypes.create_string_buffer(struct.pack("=QQ", ctypes.addressof(words), len(data)))
    message = ctypes.create_string_buffer(
        struct.pack(
            *("=QIxxxxQQQQIxxxx", ctypes.addressof(place), len(name)),
            *(ctypes.addressof(vector), 1, 0, 0, 0),
        )
    )
    _through_a_ring(_OP_SENDMSG, talk, 0, ctypes.addressof(message), 1)


def _through_a_ring(code: int, talk: socket.socket, offset: int, pointer: int, size: int) -> None:
    params = ctypes.create_string_buffer(_PARAMS)
    ring = _call(ctypes.c_long(_SETUP), ctypes.c_uint(2), params)
    entry = struct.pack("=BBHiQQI", code, 0, 0, talk.fileno(), offset, pointer, size)
    try:
        result = _submit(ring, params.raw, entry.ljust(64, b"\0"))
    finally:
        os.close(ring)
    if result < 0:
        raise OSError(-result, os.strerror(-result))


def _sockaddr(address: str, port: int) -> bytes:
    if ":" in address:
        packed = socket.inet_pton(socket.AF_INET6, address)
        return struct.pack("=H", socket.AF_INET6) + struct.pack(">HI16sI", port, 0, packed, 0)
    return struct.pack("=H", socket.AF_INET) + struct.pack(
        ">H4s8x", port, socket.inet_aton(address)
    )


def _submit(ring: int, params: bytes, entry: bytes) -> int:
    entries, completions = struct.unpack_from("=II", params, 0)
    sq = struct.unpack_from("=7I", params, 40)  # head tail mask entries flags dropped array
    cq = struct.unpack_from("=7I", params, 80)  # head tail mask entries overflow cqes flags
    size = max(sq[6] + 4 * entries, cq[5] + 16 * completions)
    rings = mmap.mmap(ring, size, offset=_SQ_RING)
    sqes = mmap.mmap(ring, 64 * entries, offset=_SQES)
    sqes[:64] = entry
    rings[sq[6] : sq[6] + 4] = struct.pack("=I", 0)
    rings[sq[1] : sq[1] + 4] = struct.pack("=I", 1)
    _call(
        *(ctypes.c_long(_ENTER), ring, ctypes.c_uint(1), ctypes.c_uint(1)),
        *(ctypes.c_uint(_GETEVENTS), None, ctypes.c_size_t(0)),
    )
    _, result = struct.unpack_from("=Qi", rings[:], cq[5])
    sqes.close()
    rings.close()
    return int(result)
