"""A process in a sandbox that does what it is told: `hold 198.18.0.1 7001`."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

PATIENCE: Final = 60.0
REFUSED: Final = {"PermissionError", "ConnectionRefusedError"}
# Connects where it is told, keeps the connection, and tells what became of it.
TALK: Final = """
import socket, sys
kept = None
for line in sys.stdin:
    word, address, port = line.split()
    try:
        if word == "hold":
            kept = socket.create_connection((address, int(port)))
            kept.send(b"hello")
        print({b"ok": "ok", b"": "end"}[kept.recv(8)], flush=True)
    except OSError as error:
        print(type(error).__name__, flush=True)
"""


class Talker:
    """The process, and the line to it."""

    def __init__(self, words: Sequence[str], environment: dict[str, str]) -> None:
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            list(words), stdin=pipe, stdout=pipe, env={**os.environ, **environment}, bufsize=0
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def begin(self, word: str, address: str, port: int) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{word} {address} {port}\n".encode())

    def result(self) -> str:
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], PATIENCE)
        assert ready, "it says nothing"
        return self._process.stdout.readline().decode().strip()

    def does(self, word: str, address: str, port: int) -> str:
        self.begin(word, address, port)
        return self.result()

    def close(self) -> None:
        with contextlib.suppress(BrokenPipeError):
            self._process.communicate(timeout=PATIENCE)
