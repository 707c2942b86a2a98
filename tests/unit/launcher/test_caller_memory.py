"""The memory of a caller: read whole or not at all, also where the caller is gone meanwhile."""

from __future__ import annotations

import ctypes
import mmap
import os
import select
import signal
import time
from typing import TYPE_CHECKING

import pytest

from democrai_osguard_launcher import caller, notification
from democrai_osguard_launcher.broker import Broker
from democrai_osguard_launcher.caller import Call
from democrai_osguard_launcher.seccomp import brokered_numbers

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def _no_memories() -> Iterator[None]:
    """Leave no open file behind: a broker in a fork would take it for its own."""
    caller.forget_memories()
    yield
    caller.forget_memories()
    while LIVING:
        _end(LIVING.pop())


WORDS = ctypes.create_string_buffer(b"/some/where")
ADDRESS = ctypes.addressof(WORDS)
LIVING: list[int] = []


def test_what_a_caller_means_is_read_until_it_is_gone() -> None:
    child = os.fork()
    if child == 0:
        signal.pause()
        os._exit(0)
    call = Call(child, child, 0, (ADDRESS,))
    try:
        assert call.text(0) == WORDS.value
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    with pytest.raises(OSError, match="Bad address"):
        call.text(0)


def test_the_memory_of_a_number_that_is_anothers_now_is_not_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is kept is of a thread that was, whose process lives on; its number has been given."""
    monkeypatch.setattr(caller, "_MEMORY_LASTS", 60.0)
    _keep_the_memory_of_another(b"/else/where")
    call = Call(0, os.getpid(), 0, (ADDRESS,))
    assert call.text(0) == b"/else/where", "this test would show nothing"
    monkeypatch.setattr(caller, "_MEMORY_LASTS", 0.01)
    time.sleep(0.02)
    assert call.text(0) == WORDS.value


@pytest.mark.parametrize("number", [59, 322, 158], ids=["execve", "execveat", "arch_prctl"])
def test_a_program_that_is_started_has_another_memory(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = Call(1, os.getpid(), number, (ADDRESS, 0, 0, 0, 0, 0))
    monkeypatch.setattr(caller, "_MEMORY_LASTS", 60.0)
    monkeypatch.setattr(notification, "receive", lambda _: started)
    monkeypatch.setattr(notification, "go_on", lambda *_: None)
    monkeypatch.setattr(notification, "refuse", lambda *_: None)
    before = os.umask(0o022)
    os.umask(before)
    broker = Broker((), 0, brokered_numbers("x86_64"))
    os.umask(before)
    _keep_the_memory_of_another(b"/else/where")
    broker.tend({0: select.POLLIN})
    os.close(caller._own.pop())  # noqa: SLF001
    assert Call(2, os.getpid(), 0, (ADDRESS,)).text(0) == WORDS.value


def test_no_more_memories_are_kept_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caller, "_MOST_MEMORIES", 2)
    children = [_fork_with(WORDS.value) for _ in range(4)]
    before = len(os.listdir("/proc/self/fd"))
    for child in (*children, *children):
        assert Call(0, child, 0, (ADDRESS,)).text(0) == WORDS.value
    assert len(os.listdir("/proc/self/fd")) <= before + 2
    _end(*children)


def _fork_with(content: bytes) -> int:
    """Start a process that has this where we have the words."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        WORDS.value = content
        os.write(writer, b"x")
        signal.pause()
    os.read(reader, 1)
    os.close(reader)
    os.close(writer)
    return child


def _end(*children: int) -> None:
    for child in children:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def _keep_the_memory_of_another(content: bytes) -> None:
    """Keep the memory of a process that lives as if it were that of this thread."""
    child = _fork_with(content)
    assert Call(0, child, 0, (ADDRESS,)).text(0) == content
    kept = caller._memories  # noqa: SLF001
    kept[os.getpid()] = kept.pop(child)
    LIVING.append(child)


def test_half_of_what_was_asked_for_is_nothing() -> None:
    area = mmap.mmap(-1, 2 * mmap.PAGESIZE)
    edge = ctypes.addressof(ctypes.c_char.from_buffer(area)) + mmap.PAGESIZE
    assert ctypes.CDLL(None).munmap(ctypes.c_void_p(edge), ctypes.c_size_t(mmap.PAGESIZE)) == 0
    call = Call(os.getpid(), os.getpid(), 0, ())
    assert call.memory(edge - 8, 8) == bytes(8)
    with pytest.raises(OSError, match="Bad address"):
        call.memory(edge - 8, 16)


def test_nothing_is_written_where_the_caller_waits_no_more() -> None:
    room = ctypes.create_string_buffer(8)
    call = Call(os.getpid(), os.getpid(), 0, ())

    def gone() -> None:
        raise PermissionError

    with pytest.raises(PermissionError):
        call.store(ctypes.addressof(room), b"x", gone)
    assert room.raw == bytes(8)
    call.store(ctypes.addressof(room), b"x", lambda: None)
    assert room.raw == b"x" + bytes(7)
    with pytest.raises(OSError, match="Bad address"):
        call.store(8, b"x", lambda: None)
