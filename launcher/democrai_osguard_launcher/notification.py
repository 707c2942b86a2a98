"""Seccomp's user notifications: a call of the command waits until the listener answers it."""

from __future__ import annotations

import errno
import fcntl
import struct

from .caller import Call

_RECEIVE = 0xC0502100
_SEND = 0xC0182101
_IS_VALID = 0x40082102
_ADD_DESCRIPTOR = 0x40182103
_CONTINUE = 1
_ADD_AND_SEND = 2  # the descriptor's number is the answer: no moment in between
_O_CLOEXEC = 0o2000000
_REQUEST = struct.Struct("=QIIiIQ6Q")
_GONE = (errno.ENOENT, errno.EINTR)


def receive(listener: int) -> Call | None:
    """Take the next call; None when its caller died or was interrupted in the meantime."""
    buffer = bytearray(_REQUEST.size)  # the kernel insists on zeros
    try:
        fcntl.ioctl(listener, _RECEIVE, buffer)
    except OSError as error:
        if error.errno in _GONE:
            return None
        raise
    identity, thread, _, number, _, _, *arguments = _REQUEST.unpack(buffer)
    return Call(identity, thread, number, tuple(arguments))


def is_waiting(listener: int, call: Call) -> bool:
    """Tell whether the caller still waits, so that its thread number still means the caller."""
    try:
        fcntl.ioctl(listener, _IS_VALID, struct.pack("=Q", call.id))
    except OSError:
        return False
    return True


def go_on(listener: int, call: Call) -> None:
    """Let the kernel carry the call out."""
    _send(listener, struct.pack("=QqiI", call.id, 0, 0, _CONTINUE))


def refuse(listener: int, call: Call, code: int) -> None:
    """Make the call fail with this errno."""
    _send(listener, struct.pack("=QqiI", call.id, 0, -code, 0))


def give_back(listener: int, call: Call, value: int) -> None:
    """Make the call return this value."""
    _send(listener, struct.pack("=QqiI", call.id, value, 0, 0))


def hand_in(listener: int, call: Call, descriptor: int, *, close_on_exec: bool) -> None:
    """Put a copy of the descriptor into the caller and return its number from the call."""
    flags = _O_CLOEXEC if close_on_exec else 0
    request = struct.pack("=QIIII", call.id, _ADD_AND_SEND, descriptor, 0, flags)
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
