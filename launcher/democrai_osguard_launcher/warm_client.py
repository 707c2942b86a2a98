"""The caller's side of the warm launcher: keeps one running, and starts commands through it.

For long-lived programs with threads, so it may import what it likes; the launcher itself does not
import it.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

from .errors import LaunchError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_LENGTH = struct.Struct("<I")
_PID = struct.Struct("<q")
_MODULE = "democrai_osguard_launcher.warm"


class LaunchFailed(LaunchError):
    """Nothing was run; the code is the one that `democrai-launch` would have exited with."""

    def __init__(self, code: int, line: str, number: int = 0) -> None:
        super().__init__(line)
        self.exit_code = code
        self.errno = number  # why the kernel would not start it

    def __reduce__(self) -> tuple[type, tuple[int, str, int], dict[str, object]]:
        """Let pickle and copy make it again from its parts."""
        return type(self), (self.exit_code, str(self), self.errno), vars(self)


class WarmLauncher:
    """One warm launcher, started when it is first needed and again when it has died."""

    def __init__(
        self, python: Sequence[str] = (sys.executable, "-I"), options: Sequence[str] = ()
    ) -> None:
        self._words = (*python, "-m", _MODULE, *options)
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: socket.socket | None = None

    def launch(
        self,
        request: Mapping[str, object],
        standard: tuple[int, int, int] = (0, 1, 2),
        keep: Mapping[int, int] | None = None,
    ) -> int:
        """Start a command as a child of this process and return its number.

        `standard` are the descriptors for its input, output and error; `keep` maps numbers in the
        command to descriptors here. Raise LaunchFailed when the command was not started.
        """
        kept = keep or {}
        text = json.dumps({**request, "keep": list(kept)}).encode()
        news, bad_news = os.pipe()
        try:
            pid = self._send(text, [*standard, bad_news, *kept.values()])
        finally:
            os.close(bad_news)
        with os.fdopen(news, "rb") as pipe:
            complaint = pipe.read()
        if complaint:
            if pid:
                os.waitpid(pid, 0)
            code, number, line = complaint.decode(errors="surrogateescape").split(" ", 2)
            raise LaunchFailed(int(code), line, int(number))
        return pid

    def close(self) -> None:
        """End the warm launcher; the commands that it started go on."""
        with self._lock:
            self._forget()

    def _send(self, text: bytes, descriptors: list[int]) -> int:
        with self._lock:
            try:
                connection = self._running()
                socket.send_fds(connection, [_LENGTH.pack(len(text))], descriptors)
                connection.sendall(text)
                answer = connection.recv(_PID.size, socket.MSG_WAITALL)
            except OSError as error:
                self._forget()
                raise LaunchFailed(LaunchError.exit_code, f"the warm launcher: {error}") from error
            if len(answer) < _PID.size:
                # Whether it had forked is unknown, so that trying again could run twice.
                self._forget()
                raise LaunchFailed(LaunchError.exit_code, "the warm launcher ended unexpectedly")
        return int(_PID.unpack(answer)[0])

    def _running(self) -> socket.socket:
        if self._process is not None and self._process.poll() is not None:
            self._forget()
        if self._connection is None:
            self._connection, theirs = socket.socketpair()
            with theirs:
                words = self._words
                self._process = subprocess.Popen(words, stdin=theirs.fileno())  # noqa: S603
        return self._connection

    def _forget(self) -> None:
        if self._connection is not None:
            self._connection.close()
        if self._process is not None:
            self._process.wait()
        self._connection = self._process = None
