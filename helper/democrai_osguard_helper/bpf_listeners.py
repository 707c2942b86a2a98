"""The program that remembers what a sandbox itself listens on, as eBPF. Pure.

A listener counts from `listen` until it stops listening, though its descriptor may stay open: by
then the port may be somebody else's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .bpf_assembly import BYTE, DOUBLE, EQ, HALF, NE, R1, R2, R6, R7, R10, WORD, Assembly
from .bpf_keys import (
    ADDRESS,
    ALLOW,
    CALLBACK_FLAGS,
    COOKIE_AT,
    DELETE,
    PORT,
    PROTOCOL,
    TCP,
    UPDATE,
    VALUE,
    ask_listener,
    change,
    copy_address,
    family_of_address,
    mapped_prefix,
    only_loopback,
    own_cookie,
)

if TYPE_CHECKING:
    from .bpf_keys import Maps


def listener_watch(maps: Maps) -> bytes:
    """Remember what the sandbox itself listens on, and the connections with those listeners."""
    program = Assembly()
    program.move(R6, R1)
    program.store_value(DOUBLE, R10, VALUE, 1)
    program.load(WORD, R7, R6, 0)  # bpf_sock_ops.op
    for operation, label in ((11, "listen"), (10, "state"), (4, "active"), (5, "passive")):
        program.jump_if(EQ, R7, operation, label)
    program.answer(ALLOW)
    _on_listen(program, maps)
    _on_state(program, maps)
    _on_established(program, maps)
    return program.code()


def _on_listen(program: Assembly, maps: Maps) -> None:
    program.label("listen")
    _watch_state(program)
    _local_key(program, "-listen")
    change(program, maps.listeners, PORT, UPDATE)
    program.answer(ALLOW)


def _on_state(program: Assembly, maps: Maps) -> None:
    """Forget a listener that stopped listening, though its descriptor may stay open."""
    program.label("state")
    program.load(WORD, R2, R6, 8)  # args[1]: the new state
    program.jump_if(NE, R2, 7, "kept")  # TCP_CLOSE
    program.load(WORD, R2, R6, 4)  # args[0]: the old state
    program.jump_if(NE, R2, 10, "flow-ends")  # TCP_LISTEN
    _local_key(program, "-state")
    change(program, maps.listeners, PORT, DELETE)
    program.answer(ALLOW)
    program.label("flow-ends")
    own_cookie(program)
    change(program, maps.flows, COOKIE_AT, DELETE)
    program.label("kept")
    program.answer(ALLOW)


def _on_established(program: Assembly, maps: Maps) -> None:
    program.label("active")
    _remote_key(program)
    program.jump("flow")
    program.label("passive")
    _local_key(program, "-passive")
    program.label("flow")
    only_loopback(program, "not-own")
    ask_listener(program, maps, "own-flow", "flow")
    program.label("not-own")
    program.answer(ALLOW)
    program.label("own-flow")
    own_cookie(program)
    change(program, maps.flows, COOKIE_AT, UPDATE)
    _watch_state(program)
    program.answer(ALLOW)


def _watch_state(program: Assembly) -> None:
    program.move(R1, R6)
    program.set(R2, 4)  # BPF_SOCK_OPS_STATE_CB_FLAG
    program.call(CALLBACK_FLAGS)


def _local_key(program: Assembly, suffix: str) -> None:
    program.load(WORD, R2, R6, 68)  # bpf_sock_ops.local_port, host order
    program.network_order_16(R2)
    program.store(HALF, R10, PORT, R2)
    _socket_address(program, 28, 48, suffix)


def _remote_key(program: Assembly) -> None:
    program.load(WORD, R2, R6, 64)  # bpf_sock_ops.remote_port, network order in the upper half
    program.shift_right(R2, 16)
    program.store(HALF, R10, PORT, R2)
    _socket_address(program, 24, 32, "-active")


def _socket_address(program: Assembly, v4: int, v6: int, suffix: str) -> None:
    program.store_value(BYTE, R10, PROTOCOL, TCP)
    program.load(WORD, R2, R6, 20)  # bpf_sock_ops.family
    program.jump_if(NE, R2, 2, "six" + suffix)  # AF_INET
    mapped_prefix(program)
    program.load(WORD, R2, R6, v4)
    program.store(WORD, R10, ADDRESS + 12, R2)
    program.jump("v6" + suffix)
    program.label("six" + suffix)
    copy_address(program, v6)
    family_of_address(program, suffix)
