"""Seccomp's user notifications: a call of the command waits until the listener answers it."""

from __future__ import annotations

import errno
import fcntl
import struct

from .caller import Call

_RECEIVE = 0xC0502100
_SEND = 0xC0182101
_IS_VALID = 0x40082102
_SET_FLAGS = 0x40082104
_WAKE_ON_THE_SAME_CPU = 1
_ADD_DESCRIPTOR = 0x40182103
_CONTINUE = 1
_ADD_AND_SEND = 2  # the descriptor's number is the answer: no moment in between
_O_CLOEXEC = 0o2000000
_REQUEST = struct.Struct("=QIIiIQ6Q")
_ID, _RESPONSE = struct.Struct("=Q"), struct.Struct("=QqiI")
_ADDITION = struct.Struct("=QIIII")
_GONE = (errno.ENOENT, errno.EINTR)
_ZEROS = bytes(_REQUEST.size)  # the kernel insists on them
_room = bytearray(_ZEROS)


def hurry(listener: int) -> None:
    """Have caller and broker take turns on one processor, which spares waking another each time."""
    try:
        fcntl.ioctl(listener, _SET_FLAGS, _WAKE_ON_THE_SAME_CPU)
    except OSError:
        return  # before Linux 6.6 there is no such flag


def receive(listener: int) -> Call | None:
    """Take the next call; None when its caller died or was interrupted in the meantime."""
    _room[:] = _ZEROS
    try:
        fcntl.ioctl(listener, _RECEIVE, _room)
    except OSError as error:
        if error.errno in _GONE:
            return None
        raise
    request = _REQUEST.unpack(_room)
    return Call(request[0], request[1], request[3], request[6:])


def is_waiting(listener: int, call: Call) -> bool:
    """Tell whether the caller still waits, so that its thread number still means the caller."""
    try:
        fcntl.ioctl(listener, _IS_VALID, _ID.pack(call.id))
    except OSError:
        return False
    return True


def go_on(listener: int, call: Call) -> None:
    """Let the kernel carry the call out."""
    _send(listener, _RESPONSE.pack(call.id, 0, 0, _CONTINUE))


def refuse(listener: int, call: Call, code: int) -> None:
    """Make the call fail with this errno."""
    _send(listener, _RESPONSE.pack(call.id, 0, -code, 0))


def give_back(listener: int, call: Call, value: int) -> None:
    """Make the call return this value."""
    _send(listener, _RESPONSE.pack(call.id, value, 0, 0))


def hand_in(listener: int, call: Call, descriptor: int, *, close_on_exec: bool) -> None:
    """Put a copy of the descriptor into the caller and return its number from the call."""
    flags = _O_CLOEXEC if close_on_exec else 0
    request = _ADDITION.pack(call.id, _ADD_AND_SEND, descriptor, 0, flags)
    try:
        fcntl.ioctl(listener, _ADD_DESCRIPTOR, request)
    except OSError as error:
        if error.errno not in _GONE:
            refuse(listener, call, error.errno or errno.EPERM)  # such as EMFILE: too many open


def _send(listener: int, response: bytes) -> None:
    try:
        fcntl.ioctl(listener, _SEND, response)
    except OSError as error:
        if error.errno not in _GONE:
            raise
