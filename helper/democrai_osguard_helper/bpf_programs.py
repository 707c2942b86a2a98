"""The programs that judge a sandbox's sockets, as eBPF. Pure: map descriptors in, bytes out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .bpf_assembly import (
    BYTE,
    DOUBLE,
    EQ,
    HALF,
    NE,
    R0,
    R1,
    R2,
    R3,
    R6,
    R7,
    R10,
    WORD,
    Assembly,
)
from .bpf_keys import (
    ADDRESS,
    ALLOW,
    COOKIE_AT,
    FAMILY,
    HEADER,
    KEY_BITS,
    LOOKUP,
    PORT,
    PORTS,
    PREFIX,
    PROTOCOL,
    REFUSE,
    TCP,
    UDP,
    UPDATE,
    VALUE,
    ask,
    ask_listener,
    change,
    copy_address,
    family_of_address,
    load_bytes,
    mapped_prefix,
    only_loopback,
    own_cookie,
    settle,
)
from .bpf_receivers import to_own_socket

if TYPE_CHECKING:
    from .bpf_keys import Maps

_STREAM, _DATAGRAM = 1, 2


def socket_create(_maps: Maps) -> bytes:
    """Refuse all but TCP and UDP sockets.

    Raw and ping sockets leave no port to judge; the connect hook does not see MPTCP and its kin.
    """
    program = Assembly()
    program.load(WORD, R2, R1, 8)  # bpf_sock.type
    program.load(WORD, R3, R1, 12)  # bpf_sock.protocol, already resolved from 0
    program.jump_if(EQ, R2, _STREAM, "stream")
    program.jump_if(NE, R2, _DATAGRAM, "refuse")
    program.jump_if(EQ, R3, UDP, "allow")
    program.jump("refuse")
    program.label("stream")
    program.jump_if(EQ, R3, TCP, "allow")
    program.label("refuse")
    program.answer(REFUSE)
    program.label("allow")
    program.answer(ALLOW)
    return program.code()


def address_v4(maps: Maps) -> bytes:
    """Judge where an IPv4 socket connects or sends to."""
    program = _address_program()
    mapped_prefix(program)
    program.load(WORD, R2, R6, 4)  # bpf_sock_addr.user_ip4
    program.store(WORD, R10, ADDRESS + 12, R2)
    _judge(program, maps)
    return program.code()


def address_v6(maps: Maps) -> bytes:
    """Judge where an IPv6 socket connects or sends to; v4-mapped is IPv4."""
    program = _address_program()
    copy_address(program, 8)  # bpf_sock_addr.user_ip6
    family_of_address(program)
    _judge(program, maps)
    return program.code()


def packet_egress(maps: Maps) -> bytes:
    """Judge each packet: what the hooks above let through before a rule was taken away, too."""
    program = Assembly()
    program.move(R6, R1)
    load_bytes(program, 0, HEADER, 20)
    program.load(BYTE, R2, R10, HEADER)
    program.jump_if(EQ, R2, 0x45, "v4")  # a longer header has options: source routes among them
    program.shift_right(R2, 4)
    program.jump_if(EQ, R2, 6, "v6")
    program.answer(REFUSE)
    _packet_v4(program)
    _packet_v6(program)
    program.label("transport")
    program.store(BYTE, R10, PROTOCOL, R7)
    program.load(HALF, R2, R10, PORTS + 2)
    program.store(HALF, R10, PORT, R2)
    program.jump_if(EQ, R7, TCP, "judge")
    program.jump_if(EQ, R7, UDP, "judge")
    program.jump("refuse")  # ICMP, fragments' tails, IPv6 extension headers: no port to judge
    program.label("judge")
    _judge(program, maps, flows=True)
    return program.code()


def _address_program() -> Assembly:
    program = Assembly()
    program.move(R6, R1)
    program.load(WORD, R7, R6, 36)  # bpf_sock_addr.protocol
    program.store(BYTE, R10, PROTOCOL, R7)
    program.load(WORD, R2, R6, 24)  # bpf_sock_addr.user_port, network order
    program.store(HALF, R10, PORT, R2)
    return program


def _packet_v4(program: Assembly) -> None:
    program.label("v4")
    program.load(HALF, R2, R10, HEADER + 6)
    program.mask(R2, 0xFF1F)  # the fragment offset, as it lies in memory
    program.jump_if(NE, R2, 0, "refuse")
    mapped_prefix(program)
    program.load(WORD, R2, R10, HEADER + 16)
    program.store(WORD, R10, ADDRESS + 12, R2)
    program.load(BYTE, R7, R10, HEADER + 9)
    load_bytes(program, 20, PORTS, 4)
    program.jump("transport")


def _packet_v6(program: Assembly) -> None:
    program.label("v6")
    load_bytes(program, 24, ADDRESS, 16)
    program.load(BYTE, R7, R10, HEADER + 6)
    program.store_value(BYTE, R10, FAMILY, 6)
    load_bytes(program, 40, PORTS, 4)


def _judge(program: Assembly, maps: Maps, *, flows: bool = False) -> None:
    """Allow what the trie covers with this port or with every port; else look for own listeners."""
    program.store_value(WORD, R10, PREFIX, KEY_BITS)
    settle(program, PREFIX)
    ask(program, maps.allowed, PREFIX, "allow")
    program.load(HALF, R7, R10, PORT)
    program.store_value(HALF, R10, PORT, 0)
    ask(program, maps.allowed, PREFIX, "allow")
    program.store(HALF, R10, PORT, R7)
    _own_listener(program, maps, flows=flows)
    program.label("denied")
    _count_denial(program, maps)
    program.label("refuse")
    program.answer(REFUSE)
    program.label("allow")
    program.answer(ALLOW)


def _own_listener(program: Assembly, maps: Maps, *, flows: bool) -> None:
    """Allow TCP on loopback to a socket of the sandbox itself, and answers to who came to it."""
    program.load(BYTE, R2, R10, PROTOCOL)
    program.jump_if(NE, R2, TCP, "denied")
    only_loopback(program, "denied")
    if flows:
        own_cookie(program)
        ask(program, maps.flows, COOKIE_AT, "allow")
        to_own_socket(program, maps)
    else:
        ask_listener(program, maps, "allow")


def _count_denial(program: Assembly, maps: Maps) -> None:
    """Count it; a full map drops it, which is the limit on how much one sandbox can report."""
    program.move(R2, R10)
    program.add(R2, PORT)
    program.load_map(R1, maps.denied)
    program.call(LOOKUP)
    program.set(R2, 1)
    program.jump_if(EQ, R0, 0, "first")
    program.count_up(R0, R2)
    program.jump("refuse")
    program.label("first")
    program.store(DOUBLE, R10, VALUE, R2)
    change(program, maps.denied, PORT, UPDATE)
