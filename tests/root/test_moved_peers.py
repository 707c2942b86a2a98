"""Who is moved into a sandbox, and what a process may not leave behind by being moved."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pytest
from root.daemons import NOBODY, START_SECONDS, Resident, become, eventually, resident
from root.lab import ALLOWED, PORT

from democrai_osguard_helper import kernel, protocol
from democrai_osguard_helper.cgroups import Box, find_mount, inside_sandbox
from democrai_osguard_helper.endpoints import Endpoint, parse_network
from democrai_osguard_helper.foreign_programs import PLACES, left_behind
from democrai_osguard_helper.protocol import Confine, Subject

if TYPE_CHECKING:
    from collections.abc import Iterator

    from root.daemons import Daemon

pytestmark = pytest.mark.needs("bpf", "iptables", "ipset")
ONE: Final = (Endpoint(parse_network(ALLOWED[4]), PORT),)
REQUEST: Final = Confine(Subject("tool", "x"), None, ONE, (), "full")
_SET_NO_NEW_PRIVS: Final = 38
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


def _nobody(*, for_good: bool) -> None:
    become(NOBODY)
    if for_good:
        assert ctypes.CDLL(None).prctl(_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0


@pytest.mark.parametrize("required", [False, True])
def test_an_operator_confines_only_who_can_gain_no_rights(
    daemon: Daemon, open_folder: str, required: bool
) -> None:
    daemon.socket = f"{open_folder}/helper.sock"
    daemon.start("--group", "nogroup", *(["--require-no-new-privs"] if required else []))
    daemon.wait()
    with resident(daemon.socket, ONE, before=lambda: _nobody(for_good=True)) as child:
        assert child.does("tcp", ALLOWED[4], PORT) == "allowed"
    with resident(daemon.socket, ONE) as root:
        assert root.does("tcp", ALLOWED[4], PORT) == "allowed"
    other = Resident(daemon.socket, ONE, before=lambda: _nobody(for_good=False))
    other.end()
    assert other.sandbox.startswith("! may_gain_rights: ") is required


CONNECT4, DEVICE = (18, 10), (15, 6)  # kinds of programs, and where they are attached
REFUSE, ALLOW = (bytes((0xB7, 0, 0, 0, answer, 0, 0, 0, 0x95, *bytes(7))) for answer in (0, 1))


@pytest.fixture
def elsewhere() -> Iterator[Box]:
    """Return a cgroup of the test's own, with another one below it."""
    box = Box("", f"{find_mount()}/osguard-test-{os.getpid()}", "")
    os.makedirs(f"{box.path}/below")
    yield box
    assert eventually(box.remove)


def _attach(box: Box, kind: tuple[int, int], code: bytes) -> None:
    cgroup = os.open(box.path, os.O_RDONLY | os.O_DIRECTORY)
    program = kernel.prog_load(*kind, code, "somebodys")
    kernel.prog_attach(cgroup, program, kind[1])
    os.close(program)
    os.close(cgroup)


def _enter(folder: str) -> None:
    Box("", folder, "").move(os.getpid())


@dataclass
class Held:
    """Somebody's program on a cgroup, and what it does to a process there."""

    word: str
    kind: tuple[int, int]
    code: bytes
    connects: str


PROGRAMS: Final = (
    Held("connect4", CONNECT4, REFUSE, "Operation not permitted"),
    Held("device", DEVICE, ALLOW, "allowed"),
)


@pytest.mark.parametrize("below", ["", "/below"], ids=["on its own cgroup", "above"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda each: each.word)
def test_nobody_leaves_the_programs_of_others_by_being_confined(
    running: Daemon, elsewhere: Box, below: str, program: Held
) -> None:
    place = elsewhere.path + below
    with resident(running.socket, ONE, before=lambda: _enter(place)) as free:
        assert free.does("tcp", ALLOWED[4], PORT) == "allowed"  # the control: nobody holds it there
    _attach(elsewhere, program.kind, program.code)
    held = Resident(running.socket, ONE, before=lambda: _enter(place))
    try:
        assert held.does("tcp", ALLOWED[4], PORT) == program.connects
        assert held.sandbox.startswith("! leaves_programs: ")
        assert f"({program.word})" in held.sandbox
        with open(f"/proc/{held.pid}/cgroup", encoding="utf-8") as file:
            assert not inside_sandbox(file.read())
    finally:
        held.end()


def test_programs_that_hold_in_both_places_are_not_left_behind(elsewhere: Box) -> None:
    other = f"{elsewhere.path}/other"
    os.mkdir(other)
    below = f"{elsewhere.path}/below"
    _attach(elsewhere, CONNECT4, REFUSE)
    assert left_behind(below, other) == ()
    assert left_behind(below, os.path.dirname(elsewhere.path)) == ("connect4",)


def test_every_place_that_this_kernel_has_for_programs_is_looked_at(elsewhere: Box) -> None:
    found = set()
    cgroup = os.open(elsewhere.path, os.O_RDONLY | os.O_DIRECTORY)
    for number in range(256):
        with contextlib.suppress(OSError):  # no place of a cgroup, or none at all
            kernel.prog_ids(cgroup, number, inherited=True)
            found.add(number)
    os.close(cgroup)
    assert {CONNECT4[1], DEVICE[1]} <= found <= set(PLACES)


def test_an_operator_lets_programs_be_left(daemon: Daemon, elsewhere: Box) -> None:
    daemon.start("--may-leave", "device,sysctl")
    daemon.wait()
    _attach(elsewhere, DEVICE, ALLOW)
    with resident(daemon.socket, ONE, before=lambda: _enter(elsewhere.path)) as child:
        assert child.does("tcp", ALLOWED[4], PORT) == "allowed"
