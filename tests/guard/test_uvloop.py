"""uvloop, whose C code dials, looks up and starts by itself: judged as on Python's own loop.

Each check runs in a fork, because a guard cannot be uninstalled.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import os
import shutil
import socket
import threading
from typing import TYPE_CHECKING, Any

import pytest
import uvloop
from guard.confined import confined

from democrai_osguard.access import Rule
from democrai_osguard.guard import current_guard, process_guard_context

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from pathlib import Path

    Act = Callable[[asyncio.AbstractEventLoop, "Stage"], Awaitable[object]]


class Stage:
    """Who listens for what is tried: a TCP port, a UDP port and a path."""

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)
        self.stream, self.packets = socket.socket(), socket.socket(type=socket.SOCK_DGRAM)
        self.named = socket.socket(socket.AF_UNIX)
        self.path = f"{folder}/listener"
        for each in (self.stream, self.packets):
            each.bind(("127.0.0.1", 0))
        self.named.bind(self.path)
        self.stream.listen()
        self.named.listen()
        self.port, self.packet_port = (
            each.getsockname()[1] for each in (self.stream, self.packets)
        )

    def close(self) -> None:
        """Let go of all of them."""
        for each in (self.stream, self.packets, self.named):
            each.close()


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    """Yield the listeners."""
    with contextlib.closing(Stage(tmp_path)) as made:
        yield made


async def _stream(loop: asyncio.AbstractEventLoop, stage: Stage) -> None:
    transport, _ = await loop.create_connection(asyncio.Protocol, "127.0.0.1", stage.port)
    transport.close()


async def _stream_by_name(_loop: asyncio.AbstractEventLoop, stage: Stage) -> None:
    _, writer = await asyncio.open_connection("localhost", stage.port)
    writer.close()


async def _stream_from_the_type(loop: asyncio.AbstractEventLoop, stage: Stage) -> None:
    kind: Any = uvloop.loop.Loop
    transport, _ = await kind.create_connection(loop, asyncio.Protocol, "127.0.0.1", stage.port)
    transport.close()


async def _in_an_empty_context(loop: asyncio.AbstractEventLoop, stage: Stage) -> None:
    work = loop.create_connection(asyncio.Protocol, "127.0.0.1", stage.port)
    transport, _ = await loop.create_task(work, context=contextvars.Context())
    transport.close()


async def _packets(loop: asyncio.AbstractEventLoop, stage: Stage) -> None:
    place = "127.0.0.1", stage.packet_port
    transport, _ = await loop.create_datagram_endpoint(asyncio.DatagramProtocol, remote_addr=place)
    transport.sendto(b"x")
    transport.close()


async def _packets_to_anybody(loop: asyncio.AbstractEventLoop, stage: Stage) -> None:
    own = "127.0.0.1", 0
    transport, _ = await loop.create_datagram_endpoint(asyncio.DatagramProtocol, local_addr=own)
    try:
        transport.sendto(b"x", ("127.0.0.1", stage.packet_port))
    finally:
        transport.close()


async def _path(loop: asyncio.AbstractEventLoop, stage: Stage) -> None:
    transport, _ = await loop.create_unix_connection(asyncio.Protocol, stage.path)
    transport.close()


async def _program(loop: asyncio.AbstractEventLoop, _stage: Stage) -> None:
    transport, _ = await loop.subprocess_exec(asyncio.SubprocessProtocol, "/bin/true")
    transport.close()


async def _line(loop: asyncio.AbstractEventLoop, _stage: Stage) -> None:
    transport, _ = await loop.subprocess_shell(asyncio.SubprocessProtocol, "true")
    transport.close()


async def _beneath_both(loop: Any, _stage: Stage) -> None:  # noqa: ANN401 - a method without a public name
    run = loop._Loop__subprocess_run  # noqa: SLF001 - what is tried
    transport, _ = await run(asyncio.SubprocessProtocol, [b"/bin/true"])
    transport.close()


async def _watching(loop: Any, stage: Stage) -> None:  # noqa: ANN401 - likewise
    loop._monitor_fs(stage.folder, print).cancel()  # noqa: SLF001 - what is tried


_CONNECT = "sandbox_network_denied"
_START = "sandbox_subprocess_denied"
_FILE = "sandbox_filesystem_denied"
ACTS: dict[str, tuple[Act, str]] = {
    "a connection": (_stream, _CONNECT),
    "a connection by name": (_stream_by_name, _CONNECT),
    "a connection, by the method of the type": (_stream_from_the_type, _CONNECT),
    "a connection, in an empty context": (_in_an_empty_context, _CONNECT),
    "datagrams to one place": (_packets, _CONNECT),
    "datagrams to anybody": (_packets_to_anybody, _CONNECT),
    "a connection to a path": (_path, _FILE),
    "a program": (_program, _START),
    "a line of a shell": (_line, _START),
    "what is beneath both": (_beneath_both, _START),
    "watching a folder": (_watching, _FILE),
}


def _rule(resource: str, operation: str, target: str) -> Rule:
    return Rule(resource, operation, target)  # type: ignore[arg-type]


def _outcome(act: Act, stage: Stage, **guard: Any) -> Any:  # noqa: ANN401 - as JSON
    """Return what comes of an act: "done", or the code of its refusal."""

    async def main() -> object:
        loop = asyncio.get_running_loop()
        inside = process_guard_context("m", "module", **guard) if guard else None
        with inside or contextlib.nullcontext():
            try:
                await act(loop, stage)
            except PermissionError as error:
                return getattr(error, "code", str(error))
        return "done"

    return confined(lambda: uvloop.run(main()))


@pytest.mark.parametrize("name", ACTS)
def test_what_no_rule_allows_is_refused(name: str, stage: Stage) -> None:
    act, code = ACTS[name]
    assert _outcome(act, stage) == "done"
    assert _outcome(act, stage, allowed_paths=[]) == code


@pytest.mark.parametrize("name", ACTS)
def test_what_a_rule_allows_is_done(name: str, stage: Stage) -> None:
    rules = [
        _rule("network", "connect", f"{host}:{port}")
        for host in ("127.0.0.1", "localhost")
        for port in (stage.port, stage.packet_port)
    ]
    rules += [_rule("filesystem", "execute", path) for path in ("/bin/true", "/bin/sh")]
    rules += [_rule("filesystem", each, stage.folder) for each in ("read", "modify")]
    guard = {"access": rules, "allow_subprocess": True}
    assert _outcome(ACTS[name][0], stage, **guard) == "done"


def test_a_program_is_talked_with_and_ends(stage: Stage) -> None:
    async def main() -> object:
        rules = [_rule("filesystem", "execute", "/bin/cat")]
        with process_guard_context("m", "module", access=rules, allow_subprocess=True):
            pipe = asyncio.subprocess.PIPE
            process = await asyncio.create_subprocess_exec("/bin/cat", stdin=pipe, stdout=pipe)
            said, _ = await process.communicate(b"hello")
            return [said.decode(), process.returncode, process.pid in _children()]

    def _children() -> set[int]:
        with open(f"/proc/self/task/{os.getpid()}/children") as file:
            return set(map(int, file.read().split()))

    assert stage.port
    assert confined(lambda: uvloop.run(main())) == ["hello", 0, False]


def _who() -> str | None:
    guard = current_guard()
    return None if guard is None else " > ".join(map(str, guard.subject_chain))


def _soon(loop: asyncio.AbstractEventLoop, work: Any, context: Any) -> None:  # noqa: ANN401
    loop.call_soon(work, context=context)


def _threadsafe(loop: asyncio.AbstractEventLoop, work: Any, context: Any) -> None:  # noqa: ANN401
    loop.call_soon_threadsafe(work, context=context)


def _later(loop: asyncio.AbstractEventLoop, work: Any, context: Any) -> None:  # noqa: ANN401
    loop.call_later(0.001, work, context=context)


def _at(loop: asyncio.AbstractEventLoop, work: Any, context: Any) -> None:  # noqa: ANN401
    loop.call_at(loop.time(), work, context=context)


def _run_elsewhere(loop: asyncio.AbstractEventLoop, work: Any, context: Any) -> None:  # noqa: ANN401
    context.run(loop.call_soon, work)


def _runs_elsewhere(loop: asyncio.AbstractEventLoop, work: Any, context: Any) -> None:  # noqa: ANN401
    loop.call_soon(context.run, work)


def _reader(loop: asyncio.AbstractEventLoop, work: Any, context: Any) -> None:  # noqa: ANN401
    end, other = os.pipe()
    os.write(other, b"x")
    context.run(loop.add_reader, end, work)
    loop.call_later(0.01, loop.remove_reader, end)


def _by_another_handle(loop: asyncio.AbstractEventLoop, work: Any, context: Any) -> None:  # noqa: ANN401
    kept = asyncio.events.Handle

    class Handle:
        def __init__(self, callback: Any, *_: object) -> None:  # noqa: ANN401
            self._run = callback

    asyncio.events.Handle = Handle  # type: ignore[assignment,misc]
    try:
        context.run(loop.call_soon, work)
    finally:
        asyncio.events.Handle = kept  # type: ignore[misc]


@pytest.mark.parametrize(
    "way",
    [_by_another_handle, _soon, _threadsafe, _later, _at, _run_elsewhere, _runs_elsewhere, _reader],
)
def test_a_callback_is_under_the_guard_of_whoever_hands_it_over(way: Any) -> None:  # noqa: ANN401
    async def main() -> object:
        found: list[str | None] = []

        def work() -> None:
            found.append(_who())

        loop = asyncio.get_running_loop()
        way(loop, work, contextvars.Context())
        await asyncio.sleep(0.02)
        with process_guard_context("m", "module"):
            way(loop, work, contextvars.Context())
        await asyncio.sleep(0.05)
        return [found[0], found[-1], _who()]

    assert confined(lambda: uvloop.run(main())) == [None, "module:m", None]


def test_a_library_s_function_with_an_empty_context_copies_nothing(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda *_: None)
        for guarded in (False, True):
            goal = str(tmp_path / f"copy-{guarded}")
            inside = process_guard_context("m", "module") if guarded else contextlib.nullcontext()
            with inside:
                source, empty = str(tmp_path / "secret"), contextvars.Context()
                loop.call_soon(shutil.copy, source, goal, context=empty)
                loop.call_soon(contextvars.Context().run, shutil.copy, source, goal)
            await asyncio.sleep(0.01)

    confined(lambda: uvloop.run(main()))
    assert sorted(each.name for each in tmp_path.iterdir()) == ["copy-False", "secret"]


def test_a_task_of_the_application_that_guarded_code_wakes_stays_its_own() -> None:
    async def main() -> object:
        event = asyncio.Event()

        async def wait() -> object:
            await event.wait()
            return _who()

        waiting = asyncio.create_task(wait())
        await asyncio.sleep(0)
        with process_guard_context("m", "module"):
            event.set()
            ours = asyncio.create_task(wait())
        thread = threading.Thread(
            target=asyncio.get_running_loop().call_soon_threadsafe, args=(_who,)
        )
        thread.start()
        thread.join()
        return [await waiting, await ours, _who()]

    assert confined(lambda: uvloop.run(main())) == [None, "module:m", None]
