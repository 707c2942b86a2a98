"""The key by which every program asks, and the few steps that they share. Pure.

Port (network order), protocol, family, address in 16 bytes. IPv4 is written as IPv4-mapped IPv6
with family 4, so that both spellings of an address are one key, and `::/0` does not cover IPv4.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from .bpf_assembly import BYTE, DOUBLE, EQ, HALF, NE, R0, R1, R2, R3, R4, R6, R10, WORD

if TYPE_CHECKING:
    from .bpf_assembly import Assembly

TCP, UDP = 6, 17
ALLOW, REFUSE = 1, 0
KEY_SIZE: Final = 20  # what a denial is known by
TRIE_KEY_SIZE: Final = 4 + KEY_SIZE
KEY_BITS: Final = KEY_SIZE * 8
LISTENER_KEY_SIZE: Final = 8 + KEY_SIZE  # the network namespace in front: each has its own loopback
LOOKUP, UPDATE, DELETE, LOAD_BYTES, COOKIE, CALLBACK_FLAGS = 1, 2, 3, 26, 46, 59  # helpers
FIND_SOCKET, RELEASE_SOCKET, NAMESPACE, ANCESTOR = 84, 86, 122, 129
_MAPPED_HALF: Final = -1  # ff ff
_LOOPBACK_BYTE: Final = 127
_V6_ONE: Final = 0x01000000  # the last word of ::1

# The stack: the key at the top (its trie prefix in front), the rest below.
PREFIX, PORT, PROTOCOL, FAMILY, ADDRESS = -24, -20, -18, -17, -16
VALUE, PORTS, HEADER, COOKIE_AT = -32, -40, -80, -88
LISTENER, TUPLE, FLAGS = -120, -160, -168


@dataclass(frozen=True, slots=True)
class Maps:
    """The descriptors of one sandbox's maps."""

    allowed: int  # trie: key → 1
    denied: int  # hash: key → how often
    listeners: int  # hash: namespace and key of listeners inside the sandbox → how many
    flows: int  # hash: cookie of a connection that such a listener accepted → 1
    home: int  # hash: number of the sandbox's cgroup → 1


def mapped_prefix(program: Assembly) -> None:
    """Write the first twelve bytes of an IPv4 address."""
    program.store_value(BYTE, R10, FAMILY, 4)
    program.store_value(DOUBLE, R10, ADDRESS, 0)
    program.store_value(HALF, R10, ADDRESS + 8, 0)
    program.store_value(HALF, R10, ADDRESS + 10, _MAPPED_HALF)


def settle(program: Assembly, place: int) -> None:
    """Write eight bytes back as they are, so that parts of them may be written again.

    Before Linux 6.8 and without CAP_PERFMON, the verifier takes a known number at the start of
    eight bytes for a pointer that was put there, and refuses to have it cut.
    """
    program.load(DOUBLE, R2, R10, place)
    program.store(DOUBLE, R10, place, R2)


def copy_address(program: Assembly, offset: int) -> None:
    """Copy an IPv6 address from the context, word by word: it can be read in no other way."""
    for part in (4, 0, 12, 8):  # the start of eight bytes last, for the reason of settle
        program.load(WORD, R2, R6, offset + part)
        program.store(WORD, R10, ADDRESS + part, R2)
    settle(program, ADDRESS)
    settle(program, ADDRESS + 8)


def family_of_address(program: Assembly, suffix: str = "") -> None:
    """Tell the family from the address: v4-mapped is IPv4."""
    program.store_value(BYTE, R10, FAMILY, 6)
    program.load(DOUBLE, R2, R10, ADDRESS)
    program.jump_if(NE, R2, 0, "v6" + suffix)
    program.load(HALF, R2, R10, ADDRESS + 8)
    program.jump_if(NE, R2, 0, "v6" + suffix)
    program.load(HALF, R2, R10, ADDRESS + 10)
    program.jump_if(NE, R2, 0xFFFF, "v6" + suffix)
    program.store_value(BYTE, R10, FAMILY, 4)
    program.label("v6" + suffix)


def only_loopback(program: Assembly, otherwise: str) -> None:
    """Jump unless the address is one of loopback."""
    program.load(BYTE, R2, R10, FAMILY)
    program.jump_if(EQ, R2, 6, "loopback6")
    program.load(BYTE, R2, R10, ADDRESS + 12)
    program.jump_if(NE, R2, _LOOPBACK_BYTE, otherwise)
    program.jump("loopback")
    program.label("loopback6")
    program.load(DOUBLE, R2, R10, ADDRESS)
    program.jump_if(NE, R2, 0, otherwise)
    program.load(WORD, R2, R10, ADDRESS + 8)
    program.jump_if(NE, R2, 0, otherwise)
    program.load(WORD, R2, R10, ADDRESS + 12)
    program.jump_if(NE, R2, _V6_ONE, otherwise)
    program.label("loopback")


def ask_listener(program: Assembly, maps: Maps, found: str) -> None:
    """Look for a listener of this namespace on this address, then on every one of its family."""
    listener_key(program)
    ask(program, maps.listeners, LISTENER, found)
    program.store_value(WORD, R10, LISTENER + 20, 0)
    ask(program, maps.listeners, LISTENER, found)


def listener_key(program: Assembly) -> None:
    """Write the key of a listener: the namespace of the socket, the address, port and protocol."""
    program.move(R1, R6)
    program.call(NAMESPACE)
    program.store(DOUBLE, R10, LISTENER, R0)
    for part in (0, 8):
        program.load(DOUBLE, R2, R10, ADDRESS + part)
        program.store(DOUBLE, R10, LISTENER + 8 + part, R2)
    program.load(WORD, R2, R10, PORT)
    program.store(WORD, R10, LISTENER + 24, R2)


def ask(program: Assembly, descriptor: int, key: int, found: str) -> None:
    """Jump when a map has the key."""
    program.move(R2, R10)
    program.add(R2, key)
    program.load_map(R1, descriptor)
    program.call(LOOKUP)
    program.jump_if(NE, R0, 0, found)


def change(program: Assembly, descriptor: int, key: int, helper: int) -> None:
    """Put the key into a map, or take it out."""
    program.load_map(R1, descriptor)
    program.move(R2, R10)
    program.add(R2, key)
    if helper == UPDATE:
        program.move(R3, R10)
        program.add(R3, VALUE)
        program.set(R4, 0)
    program.call(helper)


def own_cookie(program: Assembly) -> None:
    """Write the number of the socket where `flows` is asked for it."""
    program.move(R1, R6)
    program.call(COOKIE)
    program.store(DOUBLE, R10, COOKIE_AT, R0)


def load_bytes(program: Assembly, offset: int, place: int, size: int) -> None:
    """Copy a part of the packet to the stack; one that is shorter than its headers is refused."""
    program.move(R1, R6)
    program.set(R2, offset)
    program.move(R3, R10)
    program.add(R3, place)
    program.set(R4, size)
    program.call(LOAD_BYTES)
    program.jump_if(NE, R0, 0, "refuse")
