"""A small world for the ways out: what is inside, what is outside, and who lives there."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import socket
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from kernel.techniques import LIBC, MEMORY, SECRET, World, call

if TYPE_CHECKING:
    from collections.abc import Iterator


class Neighbour:
    """A process outside, of the same user: with a secret in its memory and in a descriptor."""

    def __init__(self, outside: Path, uid: int) -> None:
        self.descriptor = os.open(outside / "secret", os.O_RDONLY)
        ready, say = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            _live(outside, uid, say)
        os.close(say)
        os.read(ready, 1)
        os.close(ready)

    def end(self) -> None:
        os.close(self.descriptor)
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


def _live(outside: Path, uid: int, say: int) -> None:
    try:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
        LIBC.prctl(4, 1)
        os.chdir(outside)
        signal.signal(signal.SIGUSR1, lambda *_: (outside / "signalled").touch())
        abstract = socket.socket(socket.AF_UNIX)
        abstract.bind(f"\0democrai-{os.getpid()}")
        abstract.listen()
        os.write(say, b"x")
        while True:
            signal.pause()
    finally:
        os._exit(1)


@contextlib.contextmanager
def new_world(uid: int) -> Iterator[World]:
    """Make a world that belongs to a user, for as long as it is needed."""
    base = Path(tempfile.mkdtemp(prefix="world-"))
    with contextlib.ExitStack() as ends:
        ends.callback(shutil.rmtree, base)
        for name in ("inside", "outside", "readable"):
            (base / name).mkdir()
        (base / "outside/secret").write_bytes(SECRET)
        (base / "readable/file").write_bytes(b"may be read")
        servers = [
            _bound(socket.AF_INET6, socket.SOCK_STREAM, ("::", 0)),
            _bound(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0)),
            _bound(socket.AF_UNIX, socket.SOCK_STREAM, str(base / "outside/socket")),
            _bound(socket.AF_UNIX, socket.SOCK_DGRAM, str(base / "outside/datagram")),
        ]
        for server in servers:
            ends.enter_context(server)
        for path in (base, *base.rglob("*")):
            os.chown(path, uid, uid)
        shm = _shared()
        ends.callback(call, 31, shm, 0, 0)
        neighbour = Neighbour(base / "outside", uid)
        ends.callback(neighbour.end)
        tcp, udp = (server.getsockname()[1] for server in servers[:2])
        yield World(
            base / "inside", base / "outside", neighbour.pid, neighbour.descriptor, tcp, udp, shm
        )


def _bound(family: int, kind: int, address: object) -> socket.socket:
    server = socket.socket(family, kind)
    server.bind(address)  # type: ignore[arg-type]
    if kind == socket.SOCK_STREAM:
        server.listen()
    return server


def _shared() -> int:
    """Make a System V segment that anybody may attach and that holds the secret."""
    identifier = call(29, 0, 4096, 0o1666)
    LIBC.shmat.restype = ctypes.c_void_p
    address = int(LIBC.shmat(identifier, None, 0))
    ctypes.memmove(address, MEMORY, len(SECRET))
    LIBC.shmdt(ctypes.c_void_p(address))
    return identifier
