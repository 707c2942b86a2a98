"""The program that remembers what a sandbox itself listens on, as eBPF. Pure.

A listener counts from `listen` until it stops listening, though its descriptor may stay open: by
then the port may be somebody else's. What is remembered lets a connect begin; whether a packet
goes to a socket of the sandbox is judged when it leaves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .bpf_assembly import BYTE, DOUBLE, EQ, HALF, NE, R0, R1, R2, R6, R7, R10, WORD, Assembly
from .bpf_keys import (
    ADDRESS,
    ALLOW,
    CALLBACK_FLAGS,
    COOKIE_AT,
    DELETE,
    LISTENER,
    LOOKUP,
    PORT,
    PROTOCOL,
    TCP,
    UPDATE,
    VALUE,
    change,
    copy_address,
    family_of_address,
    listener_key,
    mapped_prefix,
    only_loopback,
    own_cookie,
)

if TYPE_CHECKING:
    from .bpf_keys import Maps


def listener_watch(maps: Maps) -> bytes:
    """Remember what the sandbox itself listens on, and what those listeners accepted."""
    program = Assembly()
    program.move(R6, R1)
    program.store_value(DOUBLE, R10, VALUE, 1)
    program.load(WORD, R7, R6, 0)  # bpf_sock_ops.op
    for operation, label in ((11, "listen"), (10, "state"), (5, "passive")):
        program.jump_if(EQ, R7, operation, label)
    program.answer(ALLOW)
    _on_listen(program, maps)
    _on_state(program, maps)
    _on_accepted(program, maps)
    return program.code()


def _on_listen(program: Assembly, maps: Maps) -> None:
    program.label("listen")
    _watch_state(program)
    _local_key(program, "-listen")
    _listeners_at(program, maps)
    program.jump_if(EQ, R0, 0, "first")
    program.set(R2, 1)
    program.count_up(R0, R2)  # several may share a port
    program.answer(ALLOW)
    program.label("first")
    change(program, maps.listeners, LISTENER, UPDATE)
    program.answer(ALLOW)


def _on_state(program: Assembly, maps: Maps) -> None:
    """Forget a listener that stopped listening, though its descriptor may stay open."""
    program.label("state")
    program.load(WORD, R2, R6, 8)  # args[1]: the new state
    program.jump_if(NE, R2, 7, "kept")  # TCP_CLOSE
    program.load(WORD, R2, R6, 4)  # args[0]: the old state
    program.jump_if(NE, R2, 10, "flow-ends")  # TCP_LISTEN
    _local_key(program, "-state")
    _listeners_at(program, maps)
    program.jump_if(EQ, R0, 0, "kept")
    program.move(R7, R0)
    program.set(R2, -1)
    program.count_up(R7, R2)
    program.load(DOUBLE, R2, R7, 0)
    program.jump_if(NE, R2, 0, "kept")
    change(program, maps.listeners, LISTENER, DELETE)
    program.answer(ALLOW)
    program.label("flow-ends")
    own_cookie(program)
    change(program, maps.flows, COOKIE_AT, DELETE)
    program.label("kept")
    program.answer(ALLOW)


def _listeners_at(program: Assembly, maps: Maps) -> None:
    listener_key(program)
    program.move(R2, R10)
    program.add(R2, LISTENER)
    program.load_map(R1, maps.listeners)
    program.call(LOOKUP)


def _on_accepted(program: Assembly, maps: Maps) -> None:
    """Remember what a listener of the sandbox accepted: whoever is there asked for the answers."""
    program.label("passive")
    _local_key(program, "-passive")
    only_loopback(program, "elsewhere")
    own_cookie(program)
    change(program, maps.flows, COOKIE_AT, UPDATE)
    _watch_state(program)
    program.label("elsewhere")
    program.answer(ALLOW)


def _watch_state(program: Assembly) -> None:
    program.move(R1, R6)
    program.set(R2, 4)  # BPF_SOCK_OPS_STATE_CB_FLAG
    program.call(CALLBACK_FLAGS)


def _local_key(program: Assembly, suffix: str) -> None:
    program.load(WORD, R2, R6, 68)  # bpf_sock_ops.local_port, host order
    program.network_order_16(R2)
    program.store(HALF, R10, PORT, R2)
    program.store_value(BYTE, R10, PROTOCOL, TCP)
    program.load(WORD, R2, R6, 20)  # bpf_sock_ops.family
    program.jump_if(NE, R2, 2, "six" + suffix)  # AF_INET
    mapped_prefix(program)
    program.load(WORD, R2, R6, 28)  # bpf_sock_ops.local_ip4
    program.store(WORD, R10, ADDRESS + 12, R2)
    program.jump("v6" + suffix)
    program.label("six" + suffix)
    copy_address(program, 48)  # bpf_sock_ops.local_ip6
    family_of_address(program, suffix)
