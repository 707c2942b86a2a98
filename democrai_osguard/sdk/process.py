"""A running child, as asyncio's own `Process` looks, with a time and a size that it is held to."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from typing import TYPE_CHECKING

from democrai_osguard.errors import OsGuardError
from democrai_osguard.guard.installation import doors

if TYPE_CHECKING:
    from democrai_osguard.sdk.limits import Limits
    from democrai_osguard.sdk.streams import Ends

_PIECE = 65_536
_GRACE = 0.3  # seconds to read what is left after the last moment


class OutputTooLarge(OsGuardError, RuntimeError):
    """A child that wrote more than it may. `output` and `error` are what was read before."""

    code = "sandbox_output_too_large"

    def __init__(self, most: int, output: bytes, error: bytes) -> None:
        super().__init__(f"{self.code}: more than {most} bytes")
        self.output = output
        self.error = error


class TaskProcess:
    """A child process of a guarded subject."""

    def __init__(self, pid: int, missing: tuple[str, ...], limits: Limits) -> None:
        self.pid = pid
        self.missing = missing  # what the operating system does not hold it to
        self.stdin: asyncio.StreamWriter | None = None
        self.stdout: asyncio.StreamReader | None = None
        self.stderr: asyncio.StreamReader | None = None
        self.returncode: int | None = None
        self._limits = limits
        self._max_output = limits.max_output
        self._timed_out = False
        self._transports: list[asyncio.BaseTransport] = []
        loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[None] = loop.create_future()
        self._handle = os.pidfd_open(pid)
        loop.add_reader(self._handle, self._reap, loop)
        self._last = None if limits.seconds is None else loop.time() + limits.seconds
        self._timer = None if self._last is None else loop.call_at(self._last, self._time_out)

    async def connect(self, ends: Ends) -> None:
        """Wrap our ends of the child's pipes."""
        self.stdin = await self._writer(ends.hand_over(0))
        self.stdout = await self._reader(ends.hand_over(1))
        self.stderr = await self._reader(ends.hand_over(2))

    async def end(self) -> None:
        """End the process and what it has started, and let go of its streams."""
        self._end_family()
        await asyncio.shield(self._ended)
        self._close_streams()

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
            async with asyncio.timeout_at(self._last_reading()), asyncio.TaskGroup() as group:
                group.create_task(self._write(input))
                group.create_task(self._read(self.stdout, output, error))
                group.create_task(self._read(self.stderr, error, output))
        except* OutputTooLarge:
            too_large = True  # raised below: from here some versions of Python raise a group
        except* TimeoutError:
            self._timed_out = True  # likewise
        if too_large:
            await self.end()
            raise OutputTooLarge(self._max_output or 0, bytes(output), bytes(error))
        if self._timed_out:
            self._close_streams()
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

    async def _reader(self, descriptor: int | None) -> asyncio.StreamReader | None:
        if descriptor is None:
            return None
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(self._limits.line, loop)
        file = os.fdopen(descriptor, "rb", 0)
        transport, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader, loop=loop), file
        )
        self._transports.append(transport)
        return reader

    async def _writer(self, descriptor: int | None) -> asyncio.StreamWriter | None:
        if descriptor is None:
            return None
        loop = asyncio.get_running_loop()
        file = os.fdopen(descriptor, "wb", 0)
        unread = asyncio.StreamReader(loop=loop)  # the protocol with flow control wants one
        transport, protocol = await loop.connect_write_pipe(
            lambda: asyncio.StreamReaderProtocol(unread, loop=loop), file
        )
        self._transports.append(transport)
        return asyncio.StreamWriter(transport, protocol, None, loop)

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
        if self._timed_out:  # who reads does not wait for others that have the stream, either
            loop.call_later(_GRACE, self._close_streams)
        self._ended.set_result(None)

    def _close_streams(self) -> None:
        for transport in self._transports:
            transport.close()

    def _last_reading(self) -> float | None:
        """Return until when to read: whoever else has the child's streams may keep them open."""
        now = asyncio.get_running_loop().time()
        return None if self._last is None else max(self._last, now) + _GRACE

    def _time_out(self) -> None:
        self._timed_out = True
        self._end_family()

    def _end_family(self) -> None:
        if self.returncode is None:
            doors["end_task"](self.pid)
            self.kill()
