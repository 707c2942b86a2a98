"""A caller that is gone by the time it is acted for: its number may be another's by then.

A real thread number comes back too seldom to be waited for. So here the broker is made to find
another process behind it, at the very moment after it has looked whether the caller still waits.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import signal
import socket
from typing import TYPE_CHECKING

import pytest
from kernel.conftest import plan_for

from democrai_osguard_launcher import caller, notification
from democrai_osguard_launcher.broker import Broker
from democrai_osguard_launcher.brokered import HANDLERS
from democrai_osguard_launcher.caller import Call
from democrai_osguard_launcher.connections import Connections
from democrai_osguard_launcher.outgoing import Message

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.needs("landlock", "seccomp")

SECRET = b"another's"


class Trusting(Broker):
    """A broker whose callers may do everything, and become others once it has looked."""

    def __init__(self, *words: ctypes.Array[ctypes.c_char]) -> None:
        self._words = words
        mask = os.umask(0o077)
        try:
            super().__init__((), 0, {})
        finally:
            os.umask(mask)

    def covers(self, operation: str, held: int) -> bool:
        del operation, held
        return True

    def umask_of(self, call: Call) -> int:
        del call
        for word in self._words:
            word.value = SECRET
        return 0


@pytest.fixture(autouse=True)
def _nothing_is_kept() -> Iterator[None]:
    yield
    caller.forget_memories()
    while caller._own:  # noqa: SLF001
        os.close(caller._own.pop())  # noqa: SLF001


def with_attributes(file: Path) -> Path:
    file.touch()
    try:
        os.setxattr(file, "user.there", b"x")
    except OSError as error:
        if error.errno == errno.ENOTSUP:
            pytest.skip("this file system has no attributes")
        raise
    return file


def test_what_another_has_in_memory_does_not_become_an_attribute(tmp_path: Path) -> None:
    file = with_attributes(tmp_path / "file")
    path, name, value = (
        ctypes.create_string_buffer(text, 4096)
        for text in (os.fsencode(file), b"user.own", b"the caller's")
    )
    places = (ctypes.addressof(each) for each in (path, name, value))
    call = Call(1, os.getpid(), 0, (*places, len(b"the caller's"), 0, 0))
    assert HANDLERS["setxattr"](Trusting(value), call) == 0
    assert os.getxattr(file, "user.own") == b"the caller's"
    name.value = b"user.there"
    assert HANDLERS["removexattr"](Trusting(name), call) == 0
    assert os.listxattr(file) == ["user.own"]


@contextlib.contextmanager
def child() -> Iterator[int]:
    """Start a process that is sent signals and takes none."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGPIPE])
    number = os.fork()
    if number == 0:
        signal.pause()
        os._exit(0)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    try:
        yield number
    finally:
        os.kill(number, signal.SIGKILL)
        os.waitpid(number, 0)


def pending(process: int) -> bool:
    with open(f"/proc/{process}/status", encoding="ascii") as file:
        fields = dict(line.split(":", 1) for line in file)
    waiting = int(fields["SigPnd"], 16) | int(fields["ShdPnd"], 16)
    return bool(waiting & 1 << signal.SIGPIPE - 1)


@pytest.mark.parametrize("waits", [True, False])
def test_a_broken_pipe_is_told_to_who_still_waits_and_to_nobody_else(
    waits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = socket.socketpair()
    other.close()
    with one, child() as process:
        call = Call(1, process, 0, (one.fileno(), 0, 0, 0, 0, 0))
        connections = Connections(plan_for([("connect", "127.0.0.1:1")]), Trusting())
        message = Message(b"", b"x", b"", is_whole=True)
        held, act = connections._prepared(call, message, 0)  # noqa: SLF001
        monkeypatch.setattr(notification, "is_waiting", lambda *_: waits)
        with contextlib.closing(held), pytest.raises(BrokenPipeError):
            act()
        assert pending(process) == waits
