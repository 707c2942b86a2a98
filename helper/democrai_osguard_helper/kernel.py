"""The one door to bpf(2): every use of ctypes in the helper is here, each wrapper a few lines.

Failure is read from the return value, and only then from errno.
"""

from __future__ import annotations

import ctypes
import os
import struct
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

_NUMBERS: Final = {"x86_64": 321, "aarch64": 280}  # of bpf(2), per architecture
_MAP_CREATE, _MAP_UPDATE, _MAP_DELETE, _MAP_NEXT = 0, 2, 3, 4
_PROG_LOAD, _PROG_ATTACH, _PROG_DETACH, _PROG_QUERY = 5, 8, 9, 16
_LOOKUP_AND_DELETE, _UPDATE_BATCH = 21, 26
_LICENSE: Final = b"Apache-2.0\0"  # none of the helpers that we call asks for another
_QUERY_EFFECTIVE: Final = 1
_MOST_PROGRAMS: Final = 1024  # in force on one cgroup, with those above it
_LOG_SIZE: Final = 64 * 1024
NO_PREALLOC: Final = 1
MAP_HASH: Final = 1
MAP_LPM_TRIE: Final = 11

_libc = ctypes.CDLL(None, use_errno=True)


def bpf_number() -> int:
    """Return the number of bpf(2) here; raise OSError on an architecture that nobody tried."""
    number = _NUMBERS.get(os.uname().machine)
    if number is None:
        raise OSError(0, f"no bpf(2) number for {os.uname().machine}")
    return number


def _bpf(name: str, command: int, attributes: bytes) -> int:
    buffer = ctypes.create_string_buffer(attributes, len(attributes))
    size = ctypes.c_uint(len(attributes))
    number = ctypes.c_long(bpf_number())
    result = int(_libc.syscall(number, ctypes.c_int(command), buffer, size))
    if result == -1:  # only a failed call says anything about errno
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), name)
    return result


def _address(buffer: ctypes.Array[ctypes.c_char]) -> int:
    return ctypes.addressof(buffer)


def map_create(kind: int, key: int, value: int, entries: int, name: str) -> int:
    """Create a map that grows as it is filled; return its descriptor."""
    head = struct.pack("=5I", kind, key, value, entries, NO_PREALLOC)
    return _bpf("map_create", _MAP_CREATE, head + bytes(8) + name.encode()[:15].ljust(16, b"\0"))


def map_update(descriptor: int, keys: Sequence[bytes], value: bytes) -> None:
    """Give every key this value, in one call."""
    if keys:
        _batch("map_update", _UPDATE_BATCH, descriptor, keys, value * len(keys))


def map_delete(descriptor: int, keys: Sequence[bytes]) -> None:
    """Remove the keys; one that is not there is passed over."""
    for key in keys:
        buffer = ctypes.create_string_buffer(key, len(key))
        attributes = struct.pack("=IIQQQ", descriptor, 0, _address(buffer), 0, 0)
        try:
            _bpf("map_delete", _MAP_DELETE, attributes)
        except FileNotFoundError:
            continue


def map_next(descriptor: int, after: bytes | None, size: int) -> bytes | None:
    """Return the key after this one, or None at the end."""
    key = ctypes.create_string_buffer(after, len(after)) if after is not None else None
    found = ctypes.create_string_buffer(size)
    pointer = _address(key) if key is not None else 0
    try:
        attributes = struct.pack("=IIQQQ", descriptor, 0, pointer, _address(found), 0)
        _bpf("map_next", _MAP_NEXT, attributes)
    except FileNotFoundError:
        return None
    return found.raw


def map_take(descriptor: int, key: bytes, size: int) -> bytes:
    """Return the value of a key and remove it; raise FileNotFoundError where there is none."""
    buffer = ctypes.create_string_buffer(key, len(key))
    value = ctypes.create_string_buffer(size)
    attributes = struct.pack("=IIQQQ", descriptor, 0, _address(buffer), _address(value), 0)
    _bpf("map_take", _LOOKUP_AND_DELETE, attributes)
    return value.raw


def _batch(name: str, command: int, descriptor: int, keys: Sequence[bytes], values: bytes) -> None:
    joined = b"".join(keys)
    key_buffer = ctypes.create_string_buffer(joined, len(joined))
    value_buffer = ctypes.create_string_buffer(values, max(len(values), 1))
    attributes = struct.pack(
        "=QQQQIIQQ", 0, 0, _address(key_buffer), _address(value_buffer), len(keys), descriptor, 0, 0
    )
    _bpf(name, command, attributes)


def prog_load(kind: int, attach_type: int, code: bytes, name: str) -> int:
    """Load a program; raise OSError with the verifier's last words where it is refused."""
    try:
        return _prog_load(kind, attach_type, code, name, log=None)
    except OSError as first:
        log = ctypes.create_string_buffer(_LOG_SIZE)
        try:
            return _prog_load(kind, attach_type, code, name, log=log)
        except OSError:
            words = log.value.decode(errors="replace").strip().splitlines()[-3:]
            raise OSError(first.errno, f"{first.strerror}: {' | '.join(words)}", name) from first


def _prog_load(
    kind: int, attach_type: int, code: bytes, name: str, log: ctypes.Array[ctypes.c_char] | None
) -> int:
    instructions = ctypes.create_string_buffer(code, len(code))
    license_text = ctypes.create_string_buffer(_LICENSE, len(_LICENSE))
    logging = (1, _LOG_SIZE, _address(log)) if log is not None else (0, 0, 0)
    attributes = struct.pack(
        "=IIQQIIQII16sII",
        *(kind, len(code) // 8, _address(instructions), _address(license_text)),
        *logging,
        *(0, 0, name.encode()[:15], 0, attach_type),
    )
    return _bpf("prog_load", _PROG_LOAD, attributes)


def prog_attach(cgroup: int, program: int, attach_type: int) -> None:
    """Attach exclusively: replaces our own earlier program in one step, forbids any beneath."""
    _bpf("prog_attach", _PROG_ATTACH, struct.pack("=5I", cgroup, program, attach_type, 0, 0))


def prog_detach(cgroup: int, attach_type: int) -> None:
    """Detach what `prog_attach` attached."""
    _bpf("prog_detach", _PROG_DETACH, struct.pack("=5I", cgroup, 0, attach_type, 0, 0))


def prog_ids(cgroup: int, attach_type: int, *, inherited: bool = False) -> tuple[int, ...]:
    """Return the identities of the programs attached to exactly this cgroup, or in force there."""
    room = _MOST_PROGRAMS if inherited else 16
    ids = ctypes.create_string_buffer(4 * room)
    count = _prog_query(cgroup, attach_type, _address(ids), room, inherited=inherited)
    return struct.unpack_from(f"={count}I", ids.raw, 0)


def prog_count(cgroup: int, attach_type: int) -> int:
    """Return how many programs are in force on a cgroup, those above it included."""
    return _prog_query(cgroup, attach_type, 0, 0, inherited=True)


def _prog_query(cgroup: int, attach_type: int, ids: int, room: int, *, inherited: bool) -> int:
    flags = _QUERY_EFFECTIVE if inherited else 0
    attributes = struct.pack("=4IQII", cgroup, attach_type, flags, 0, ids, room, 0)
    buffer = ctypes.create_string_buffer(attributes, len(attributes))
    number = ctypes.c_long(bpf_number())
    result = _libc.syscall(number, ctypes.c_int(_PROG_QUERY), buffer, ctypes.c_uint(len(buffer)))
    if result == -1:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), "prog_query")
    return int(struct.unpack_from("=I", buffer.raw, 24)[0])
