"""Who is moved into a sandbox, and what a process may not leave behind by being moved."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pytest
from root.daemons import NOBODY, START_SECONDS, become, eventually
from root.lab import ALLOWED, PORT

from democrai_osguard_helper import protocol
from democrai_osguard_helper.cgroups import inside_sandbox
from democrai_osguard_helper.endpoints import Endpoint, parse_network
from democrai_osguard_helper.protocol import Confine, Subject

if TYPE_CHECKING:
    from collections.abc import Iterator

    from root.daemons import Daemon

pytestmark = pytest.mark.needs("bpf", "iptables", "ipset")
ONE: Final = (Endpoint(parse_network(ALLOWED[4]), PORT),)
REQUEST: Final = Confine(Subject("tool", "x"), None, ONE, (), "full")
PLAIN, SET_UID, SET_GID = 0o755, 0o4755, 0o2755


@dataclass
class Opener:
    """A user's process that opened a connection, and became a program; a child kept the line."""

    pid: int
    talk: socket.socket  # to the child

    def has_become(self, program: str) -> bool:
        return os.readlink(f"/proc/{self.pid}/exe") == program

    def is_moved(self) -> bool:
        with open(f"/proc/{self.pid}/cgroup", encoding="utf-8") as file:
            return inside_sandbox(file.read())

    def answer(self) -> str:
        """Let the child send, where it is to, and return what it heard."""
        self.talk.send(b"go")
        return self.talk.recv(200).decode()


@contextlib.contextmanager
def opener(path: str, program: str, sender: str) -> Iterator[Opener]:
    """Let a process connect and become a program; it has sent before, or its child will."""
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        try:
            ours.close()
            _open_and_become(path, program, sender, theirs)
        finally:
            os._exit(1)
    theirs.close()
    ours.settimeout(START_SECONDS)
    try:
        yield Opener(pid, ours)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        ours.close()


def _open_and_become(path: str, program: str, sender: str, theirs: socket.socket) -> None:
    become(NOBODY)
    line = socket.socket(socket.AF_UNIX)
    line.connect(path)
    if sender == "opener":
        line.sendall(protocol.frame(REQUEST))
    if os.fork() == 0:
        theirs.recv(8)
        if sender == "child":
            line.sendall(protocol.frame(REQUEST))
        size = int.from_bytes(line.recv(protocol.HEADER, socket.MSG_WAITALL), "big")
        reply = protocol.parse_reply(line.recv(size, socket.MSG_WAITALL))
        theirs.send(getattr(reply, "code", reply.CALL).encode())
        os._exit(0)
    os.execv(program, ["sleep", "600"])  # noqa: S606 - no shell is wanted


@pytest.fixture
def open_daemon(daemon: Daemon, open_folder: str) -> Daemon:
    """Return a helper that ordinary users may ask."""
    daemon.socket = f"{open_folder}/helper.sock"
    daemon.start("--group", "nogroup")
    daemon.wait()
    return daemon


def _program(folder: str, mode: int) -> str:
    path = f"{folder}/program"
    shutil.copyfile(os.path.realpath(shutil.which("sleep") or "sleep"), path)
    os.chmod(path, mode)
    return path


@pytest.mark.parametrize(
    ("sender", "mode", "answer"),
    [
        ("opener", PLAIN, "applied"),  # the control: it is moved, whatever it became
        ("opener", SET_UID, "rights_changed"),
        ("opener", SET_GID, "rights_changed"),
        ("child", PLAIN, "not_the_opener"),
        ("child", SET_UID, "not_the_opener"),
    ],
)
def test_a_program_with_other_rights_is_not_moved_into_a_users_sandbox(
    open_daemon: Daemon, open_folder: str, sender: str, mode: int, answer: str
) -> None:
    assert open_daemon.process is not None
    program = _program(open_folder, mode)
    open_daemon.process.send_signal(signal.SIGSTOP)  # so that it looks when all is done
    try:
        with opener(open_daemon.socket, program, sender) as peer:
            assert eventually(lambda: peer.has_become(program))
            open_daemon.process.send_signal(signal.SIGCONT)
            assert peer.answer() == answer
            assert peer.is_moved() is (answer == "applied")
    finally:
        open_daemon.process.send_signal(signal.SIGCONT)
