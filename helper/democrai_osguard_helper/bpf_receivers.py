"""Whose socket a packet on loopback goes to, as eBPF. Pure.

The kernel is asked which socket receives the packet, in the network namespace that it is in, and
of that socket in which cgroup it was made: an address and a port say neither. What nobody receives
is no way out, unless it opens a connection: somebody may listen by the time it arrives.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from .bpf_assembly import (
    BYTE,
    DOUBLE,
    EQ,
    NE,
    R0,
    R1,
    R2,
    R3,
    R4,
    R5,
    R6,
    R8,
    R10,
    WORD,
)
from .bpf_keys import (
    ANCESTOR,
    COOKIE_AT,
    FAMILY,
    FIND_SOCKET,
    FLAGS,
    HEADER,
    LOOKUP,
    PORTS,
    RELEASE_SOCKET,
    TUPLE,
    load_bytes,
)

if TYPE_CHECKING:
    from .bpf_assembly import Assembly
    from .bpf_keys import Maps

_LISTEN: Final = 10  # TCP_LISTEN
_SYN: Final = 0x02
_HERE: Final = -1  # the network namespace of the packet
# A sandbox is two levels below the root of the tree, or deeper where that is itself in a container.
_LEVELS: Final = (2, 1, 3, 4, 5, 6, 7, 8)
_V4_HEADER, _V6_HEADER = 20, 40


def to_own_socket(program: Assembly, maps: Maps) -> None:
    """Jump to `allow` when a packet on loopback answers, or goes to a socket of the sandbox."""
    _from_a_listener(program)
    _flags(program)
    _find_receiver(program)
    program.jump_if(EQ, R0, 0, "nobody")
    _ask_home(program, maps)
    program.label("nobody")
    program.load(BYTE, R2, R10, FLAGS + 1)
    program.mask(R2, _SYN)
    program.jump_if(EQ, R2, 0, "allow")


def _from_a_listener(program: Assembly) -> None:
    """Let a listener answer: all that it sends itself says that a connection may be."""
    program.load(DOUBLE, R1, R6, 168)  # __sk_buff.sk
    program.jump_if(EQ, R1, 0, "denied")
    program.load(WORD, R2, R1, 72)  # bpf_sock.state
    program.jump_if(EQ, R2, _LISTEN, "allow")


def _flags(program: Assembly) -> None:
    program.load(BYTE, R2, R10, FAMILY)
    program.jump_if(EQ, R2, 6, "flags6")
    load_bytes(program, _V4_HEADER + 12, FLAGS, 2)
    program.set(R8, _V4_HEADER)
    program.jump("flags")
    program.label("flags6")
    load_bytes(program, _V6_HEADER + 12, FLAGS, 2)
    program.set(R8, _V6_HEADER)
    program.label("flags")
    _no_early_data(program)


def _no_early_data(program: Assembly) -> None:
    """Refuse data beside a SYN: among listeners that share a port a filter of theirs may choose.

    Everything after the SYN goes to a socket that is known; data comes again with that.
    """
    program.load(BYTE, R2, R10, FLAGS + 1)
    program.mask(R2, _SYN)
    program.jump_if(EQ, R2, 0, "no-data")
    program.load(WORD, R2, R6, 0)  # __sk_buff.len
    program.subtract(R2, R8)
    program.load(BYTE, R3, R10, FLAGS)
    program.mask(R3, 0xF0)
    program.shift_right(R3, 2)  # the header's length, in bytes
    program.subtract(R2, R3)
    program.jump_if(NE, R2, 0, "refuse")
    program.label("no-data")


def _find_receiver(program: Assembly) -> None:
    program.load(BYTE, R2, R10, FAMILY)
    program.jump_if(EQ, R2, 6, "tuple6")
    for part in (4, 0):  # to, from: the start of eight bytes last, for the reason of settle
        program.load(WORD, R2, R10, HEADER + 12 + part)
        program.store(WORD, R10, TUPLE + part, R2)
    program.load(WORD, R2, R10, PORTS)
    program.store(WORD, R10, TUPLE + 8, R2)
    program.set(R3, 12)
    program.jump("find")
    program.label("tuple6")
    load_bytes(program, 8, TUPLE, 32)  # from, to: what goes to ::1 may come from elsewhere
    program.load(WORD, R2, R10, PORTS)
    program.store(WORD, R10, TUPLE + 32, R2)
    program.set(R3, 36)
    program.label("find")
    program.move(R1, R6)
    program.move(R2, R10)
    program.add(R2, TUPLE)
    program.set(R4, _HERE)
    program.set(R5, 0)
    program.call(FIND_SOCKET)


def _ask_home(program: Assembly, maps: Maps) -> None:
    """Jump to `allow` when the socket in r0 was made in the sandbox, else to `denied`."""
    program.move(R8, R0)
    for level in _LEVELS:
        program.move(R1, R8)
        program.set(R2, level)
        program.call(ANCESTOR)
        program.store(DOUBLE, R10, COOKIE_AT, R0)
        program.move(R2, R10)
        program.add(R2, COOKIE_AT)
        program.load_map(R1, maps.home)
        program.call(LOOKUP)
        program.jump_if(NE, R0, 0, "at-home")
    _release(program)
    program.jump("denied")
    program.label("at-home")
    _release(program)
    program.jump("allow")


def _release(program: Assembly) -> None:
    program.move(R1, R8)
    program.call(RELEASE_SOCKET)
