"""Servers on the loopback, and what dials them."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import socket
import struct
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kernel.conftest import Action

LOOPBACK: dict[int, str] = {socket.AF_INET: "127.0.0.1", socket.AF_INET6: "::1"}
FAMILIES = [pytest.param(socket.AF_INET, id="v4"), pytest.param(socket.AF_INET6, id="v6")]
SECONDS = 60


def place(family: int, port: int) -> str:
    return f"127.0.0.1:{port}" if family == socket.AF_INET else f"[::1]:{port}"


@contextlib.contextmanager
def server(family: int, kind: int = socket.SOCK_STREAM) -> Iterator[tuple[socket.socket, int]]:
    with socket.socket(family, kind) as own:
        own.bind((LOOPBACK[family], 0))
        if kind == socket.SOCK_STREAM:
            own.listen(300)
        own.settimeout(SECONDS)
        yield own, own.getsockname()[1]


def opened(port: int) -> socket.socket:
    """Return a connection; `create_connection` would read modules, which no rule allows here."""
    client = socket.socket()
    client.connect(("127.0.0.1", port))
    return client


def dial(
    family: int, port: int, *, blocking: bool = True, kind: int = socket.SOCK_STREAM
) -> Action:
    """Connect and say something, the way an event loop or a plain program does it."""

    def act() -> None:
        with socket.socket(family, kind) as client:
            client.setblocking(blocking)
            code = client.connect_ex((LOOPBACK[family], port))
            if code == errno.EINPROGRESS and not blocking:
                select.select([], [client], [], SECONDS)
                code = client.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code:
                raise OSError(code, os.strerror(code))
            client.send(b"hello")

    return act


def address_of(port: int) -> bytes:
    return struct.pack("=H", socket.AF_INET) + struct.pack(">H4s8x", port, b"\x7f\0\0\1")
