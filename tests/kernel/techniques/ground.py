"""What every technique stands on: the world that it is a function of, and the kernel's calls."""

from __future__ import annotations

import ctypes
import os
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    # What it does, and whether an ordinary user can do it, free.
    Technique = tuple[Callable[["World"], object], bool]

LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.syscall.restype = ctypes.c_long
SECRET = b"what nobody inside may know"
MEMORY = ctypes.create_string_buffer(SECRET, 64)  # at the same address in every fork


class World(NamedTuple):
    """A folder inside with every right but execute, one outside with none, and a neighbour."""

    inside: Path
    outside: Path
    victim: int  # a process of the same user, with the secret open and in its memory
    victim_fd: int
    tcp: int
    udp: int
    shm: int

    @property
    def secret(self) -> Path:
        return self.outside / "secret"


def call(number: int, *arguments: object) -> int:
    wide = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    result = int(LIBC.syscall(ctypes.c_long(number), *wide))
    if result == -1:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def must_be_secret(data: bytes) -> None:
    if not data.startswith(SECRET):
        raise AssertionError(f"not the secret: {data!r}")


def read_path(path: str | Path, *, dir_fd: int | None = None) -> None:
    descriptor = os.open(path, os.O_RDONLY, dir_fd=dir_fd)
    must_be_secret(os.read(descriptor, 64))
