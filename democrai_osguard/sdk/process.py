"""A running child, as asyncio's own `Process` looks, with a time and a size that it is held to."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from typing import TYPE_CHECKING

from democrai_osguard.errors import OsGuardError

if TYPE_CHECKING:
    from democrai_osguard.sdk.streams import Ends

_PIECE = 65_536


class OutputTooLarge(OsGuardError, RuntimeError):
    """A child that wrote more than it may. `output` and `error` are what was read before."""

    code = "sandbox_output_too_large"

    def __init__(self, most: int, output: bytes, error: bytes) -> None:
        super().__init__(f"{self.code}: more than {most} bytes")
        self.output = output
        self.error = error


class TaskProcess:
    """A child process of a guarded subject."""

    def __init__(
        self, pid: int, missing: tuple[str, ...], timeout: float | None, max_output: int | None
    ) -> None:
        self.pid = pid
        self.missing = missing  # what the operating system does not hold it to
        self.stdin: asyncio.StreamWriter | None = None
        self.stdout: asyncio.StreamReader | None = None
        self.stderr: asyncio.StreamReader | None = None
        self.returncode: int | None = None
        self._max_output = max_output
        self._timed_out = False
        loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[None] = loop.create_future()
        self._handle = os.pidfd_open(pid)
        loop.add_reader(self._handle, self._reap, loop)
        self._timer = None if timeout is None else loop.call_later(timeout, self._time_out)

    async def connect(self, ends: Ends, limit: int) -> None:
        """Wrap our ends of the child's pipes."""
        loop = asyncio.get_running_loop()
        self.stdin = await _writer(loop, ends.hand_over(0))
        self.stdout = await _reader(loop, ends.hand_over(1), limit)
        self.stderr = await _reader(loop, ends.hand_over(2), limit)

    async def wait(self) -> int:
        """Return the exit code, negative for a signal; raise TimeoutError after the timeout."""
        await asyncio.shield(self._ended)
        if self._timed_out:
            raise TimeoutError("the process took too long and was killed")
        return self.returncode or 0

    async def communicate(self, input: bytes | None = None) -> tuple[bytes, bytes]:  # noqa: A002 - asyncio's own name
        """Write, read until the end and wait; raise OutputTooLarge beyond the most that it may."""
        output, error = bytearray(), bytearray()
        too_large = False
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._write(input))
                group.create_task(self._read(self.stdout, output, error))
                group.create_task(self._read(self.stderr, error, output))
        except* OutputTooLarge:
            too_large = True  # raised below: from here some versions of Python raise a group
        if too_large:
            self.kill()
            await asyncio.shield(self._ended)
            raise OutputTooLarge(self._max_output or 0, bytes(output), bytes(error))
        await self.wait()
        return bytes(output), bytes(error)

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the process has ended already."""
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._handle, number)

    def terminate(self) -> None:
        """Ask the process to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End the process."""
        self.send_signal(signal.SIGKILL)

    async def _write(self, data: bytes | None) -> None:
        if self.stdin is None:
            return
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.stdin.write(data or b"")
            await self.stdin.drain()
        self.stdin.close()

    async def _read(
        self, stream: asyncio.StreamReader | None, into: bytearray, other: bytearray
    ) -> None:
        while stream is not None and (piece := await stream.read(_PIECE)):
            into += piece
            if self._max_output is not None and len(into) + len(other) > self._max_output:
                raise OutputTooLarge(self._max_output, b"", b"")

    def _reap(self, loop: asyncio.AbstractEventLoop) -> None:
        loop.remove_reader(self._handle)
        if self._timer is not None:
            self._timer.cancel()
        try:
            _, status = os.waitpid(self.pid, 0)
            self.returncode = os.waitstatus_to_exitcode(status)
        except ChildProcessError:  # somebody else has waited for it; how it ended is lost
            self.returncode = 255
        os.close(self._handle)
        self._ended.set_result(None)

    def _time_out(self) -> None:
        self._timed_out = True
        self.kill()


async def _reader(
    loop: asyncio.AbstractEventLoop, descriptor: int | None, limit: int
) -> asyncio.StreamReader | None:
    if descriptor is None:
        return None
    reader = asyncio.StreamReader(limit, loop)
    file = os.fdopen(descriptor, "rb", 0)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader, loop=loop), file)
    return reader


async def _writer(
    loop: asyncio.AbstractEventLoop, descriptor: int | None
) -> asyncio.StreamWriter | None:
    if descriptor is None:
        return None
    file = os.fdopen(descriptor, "wb", 0)
    unread = asyncio.StreamReader(loop=loop)  # the protocol with flow control wants one
    transport, protocol = await loop.connect_write_pipe(
        lambda: asyncio.StreamReaderProtocol(unread, loop=loop), file
    )
    return asyncio.StreamWriter(transport, protocol, None, loop)
