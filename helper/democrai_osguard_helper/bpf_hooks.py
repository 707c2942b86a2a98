"""The hooks of a sandbox: each program, where it is attached, and what it closes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from .bpf_listeners import listener_watch
from .bpf_programs import address_v4, address_v6, packet_egress, socket_create

if TYPE_CHECKING:
    from collections.abc import Callable

    from .bpf_keys import Maps


@dataclass(frozen=True, slots=True)
class Hook:
    """One program: where it is attached and why leaving it out would open something."""

    name: str
    program_type: int
    attach_type: int
    build: Callable[[Maps], bytes]
    why: str


_SKB, _SOCK, _SOCK_OPS, _SOCK_ADDR = 8, 9, 13, 18  # program types
HOOKS: Final = (
    Hook("create", _SOCK, 2, socket_create, "raw and ping sockets, protocols without a hook"),
    Hook("connect4", _SOCK_ADDR, 10, address_v4, "answers a connect at once, and counts it"),
    Hook("connect6", _SOCK_ADDR, 11, address_v6, "the same for IPv6 and v4-mapped"),
    Hook("sendmsg4", _SOCK_ADDR, 14, address_v4, "answers a UDP send at once, and counts it"),
    Hook("sendmsg6", _SOCK_ADDR, 15, address_v6, "the same for IPv6 and v4-mapped"),
    Hook("egress", _SKB, 1, packet_egress, "what connected before its rule was taken away"),
    Hook("listeners", _SOCK_OPS, 3, listener_watch, "opens what the sandbox itself listens on"),
)
