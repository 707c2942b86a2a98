"""An address that another thread rewrites meanwhile leads nowhere else."""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import struct
import threading
from typing import TYPE_CHECKING

import pytest
from kernel.loopback import address_of, server
from kernel.techniques import LIBC

if TYPE_CHECKING:
    from kernel.conftest import Action, Confined, Free

pytestmark = pytest.mark.needs("landlock", "landlock-tcp", "seccomp")

ROUNDS = 10_000


def rewriting(call: str, port: int, closed: int) -> Action:
    """Return an act that sends to an address whose port another thread changes all the time."""

    def act() -> None:
        memory = ctypes.create_string_buffer(address_of(port))
        both = [struct.pack(">H", number) for number in (port, closed)]
        stop = threading.Event()

        def flip() -> None:
            while not stop.is_set():
                for each in both:
                    ctypes.memmove(ctypes.addressof(memory) + 2, each, 2)

        thread = threading.Thread(target=flip)
        thread.start()
        client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        for _ in range(ROUNDS):
            _send_raw(call, client.fileno(), memory)
        stop.set()
        thread.join()

    return act


def arrived(at: socket.socket) -> int:
    at.setblocking(False)
    count = 0
    with contextlib.suppress(BlockingIOError):
        while at.recv(10):
            count += 1
    return count


@pytest.mark.parametrize("call", ["connect", "sendto", "sendmsg"])
def test_an_address_that_another_thread_rewrites_leads_nowhere_else(
    call: str, confined: Confined, free: Free
) -> None:
    udp = socket.SOCK_DGRAM
    with server(socket.AF_INET, udp) as (own, port), server(socket.AF_INET, udp) as (other, closed):
        act = rewriting(call, port, closed)
        assert confined(act, ("connect", f"127.0.0.1:{port}")) == "allowed"
        assert (arrived(own) > 0, arrived(other)) == (True, 0)
        # The control: sooner or later the other port is met.
        met = (free(act) == "allowed" and arrived(other) > 0 for _ in range(100))
        assert any(met)


def _send_raw(call: str, number: int, memory: ctypes.Array[ctypes.c_char]) -> None:
    at = ctypes.addressof(memory)
    if call == "connect":
        if LIBC.connect(number, ctypes.c_void_p(at), 16) == 0:
            os.write(number, b"x")
    elif call == "sendto":
        LIBC.sendto(number, b"x", 1, 0, ctypes.c_void_p(at), 16)
    else:
        text = ctypes.create_string_buffer(b"x")
        piece = (ctypes.c_uint64 * 2)(ctypes.addressof(text), 1)
        header = (ctypes.c_uint64 * 7)(at, 16, ctypes.addressof(piece), 1, 0, 0, 0)
        LIBC.sendmsg(number, ctypes.byref(header), 0)
