"""The broker under attack: arguments and paths that change while it looks, and its own death."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import mmap
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
from kernel.techniques import LIBC

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from kernel.conftest import Confined, Free

pytestmark = pytest.mark.needs("landlock", "landlock-truncate", "seccomp")

ROUNDS = 10_000
CREATE = os.O_CREAT | os.O_EXCL | os.O_WRONLY
OPENAT, CHMOD, RENAME_EXCHANGE = 257, 90, 2
AT_FDCWD = -100


@contextlib.contextmanager
def meanwhile(act: Callable[[], object]) -> Iterator[None]:
    """Do something again and again in another process, at the same time."""
    child = os.fork()
    if child == 0:
        while True:
            act()
    try:
        yield
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """Return a folder inside and one outside, whose names differ in one letter."""
    inside, outside = tmp_path / "a", tmp_path / "b"
    inside.mkdir()
    outside.mkdir()
    return inside, outside


class Pointer:
    """A path in memory that another process rewrites; one letter, so that it is always a path."""

    def __init__(self, inside: Path, name: str) -> None:
        text = os.fsencode(inside / name) + b"\0"
        self._memory = mmap.mmap(-1, mmap.PAGESIZE)  # shared with forks
        self._memory[: len(text)] = text
        self._place = len(os.fsencode(inside)) - 1
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))

    def flip(self) -> None:
        for letter in b"ab" * 100:
            self._memory[self._place] = letter


def create_through(pointer: Pointer, inside: Path, won: Callable[[], bool]) -> bool:
    """Create through the pointer, again and again; tell whether that ever led outside."""
    for _ in range(ROUNDS):
        made = LIBC.syscall(OPENAT, AT_FDCWD, ctypes.c_void_p(pointer.address), CREATE, 0o600)
        if made >= 0:
            os.close(made)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(inside / "new")
        if won():
            return True
    return False


@pytest.mark.always
@pytest.mark.skipif(os.uname().machine != "x86_64", reason="numbers of calls are this machine's")
def test_a_pointer_that_is_rewritten_leads_nowhere_else(
    folders: tuple[Path, Path], confined: Confined, free: Free
) -> None:
    inside, outside = folders
    pointer = Pointer(inside, "new")

    def act() -> None:
        create_through(pointer, inside, lambda: False)

    with meanwhile(pointer.flip):
        assert confined(act, ("create", inside), ("delete", inside)) == "allowed"
        assert not list(outside.iterdir())

        def until_won() -> None:
            while not create_through(pointer, inside, lambda: bool(os.listdir(outside))):
                pass

        assert free(until_won) == "allowed"


@pytest.mark.always
@pytest.mark.skipif(os.uname().machine != "x86_64", reason="numbers of calls are this machine's")
def test_metadata_is_changed_where_it_was_judged(
    folders: tuple[Path, Path], confined: Confined, free: Free
) -> None:
    inside, outside = folders
    for folder in folders:
        (folder / "file").write_text("x")
        (folder / "file").chmod(0o600)
    pointer = Pointer(inside, "file")

    def change() -> None:
        for _ in range(ROUNDS):
            LIBC.syscall(CHMOD, ctypes.c_void_p(pointer.address), 0o640)

    def mode() -> int:
        return (outside / "file").stat().st_mode & 0o777

    with meanwhile(pointer.flip):
        assert confined(change, ("modify", inside)) == "allowed"
        assert mode() == 0o600
        assert (inside / "file").stat().st_mode & 0o777 == 0o640, "it was never changed at all"
        while mode() == 0o600:
            assert free(change) == "allowed"


def create_on_the_way(inside: Path, outside: Path, rounds: int) -> bool:
    """Create beneath a folder that is swapped; tell whether that ever led outside."""
    for _ in range(rounds):
        with contextlib.suppress(OSError):
            os.close(os.open(inside / "way/new", CREATE))
        if os.path.exists(outside / "new"):
            return True
        for name in ("way/new", "link/new"):
            with contextlib.suppress(OSError):
                os.unlink(inside / name)
    return False


@pytest.mark.always
def test_a_folder_that_is_swapped_for_a_link_leads_nowhere_else(
    folders: tuple[Path, Path], confined: Confined, free: Free
) -> None:
    inside, outside = folders
    (inside / "way").mkdir()
    (inside / "link").symlink_to(outside)
    names = os.fsencode(inside / "way"), os.fsencode(inside / "link")

    def swap() -> None:
        LIBC.renameat2(AT_FDCWD, names[0], AT_FDCWD, names[1], RENAME_EXCHANGE)

    def act() -> None:
        assert not create_on_the_way(inside, outside, ROUNDS)

    def until_won() -> None:
        while not create_on_the_way(inside, outside, ROUNDS):
            pass

    with meanwhile(swap):
        assert confined(act, ("create", inside), ("delete", inside)) == "allowed"
        assert not list(outside.iterdir())
        assert free(until_won) == "allowed"


def test_two_hundred_processes_in_one_sandbox(tmp_path: Path, confined: Confined) -> None:
    def act() -> None:
        reader, writer = os.pipe()
        children = []
        for number in range(200):
            child = os.fork()
            if child == 0:
                os.close(writer)
                os.read(reader, 1)  # until all are there
                os.close(os.open(tmp_path / str(number), CREATE))
                os._exit(0)
            children.append(child)
        os.close(writer)
        for child in children:
            assert os.waitpid(child, 0)[1] == 0

    assert confined(act, ("create", tmp_path)) == "allowed"
    assert len(list(tmp_path.iterdir())) == 200


def test_a_child_of_vfork_is_brokered_too(tmp_path: Path, confined: Confined) -> None:
    def act() -> None:
        words = ["/usr/bin/mkdir", str(tmp_path / "made")]
        child = os.posix_spawn(words[0], words, {})  # libc's is a vfork
        assert os.waitpid(child, 0)[1] == 0

    mkdir = ("execute", "/usr/bin/mkdir")
    assert confined(act, ("create", tmp_path), mkdir) == "allowed"
    assert (tmp_path / "made").is_dir()


ORPHAN = """
import errno, os, sys, time
supervisor = os.getppid()
def lives():
    try:
        with open(f"/proc/{supervisor}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False  # gone, also while it is read
if os.fork() == 0:
    while lives():
        time.sleep(0.01)
    try:
        os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY)
        print("created", flush=True)
    except OSError as error:
        print(errno.errorcode[error.errno], flush=True)
    os._exit(0)
print("ready", flush=True)
time.sleep(600)
"""


def test_when_the_broker_is_killed_trapped_calls_fail_and_nothing_hangs(tmp_path: Path) -> None:
    words = [sys.executable, "-I", "-m", "democrai_osguard_launcher"]
    words += ["--create", str(tmp_path), "--read", "/proc", "--", sys.executable, "-I", "-c"]
    process = subprocess.Popen(
        [*words, ORPHAN, str(tmp_path / "new")], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.kill()  # the supervisor: the command dies with it, and what it started is left
    process.wait()
    assert process.stdout.read() == errno.errorcode[errno.ENOSYS] + "\n"
    process.stdout.close()
    assert not (tmp_path / "new").exists()


def test_a_signal_that_ends_a_waiting_call_is_a_death(tmp_path: Path, confined: Confined) -> None:
    """A caller that is killed while it waits leaves no half of an act behind for the next one."""

    def act() -> None:
        for number in range(50):
            child = os.fork()
            if child == 0:
                while True:
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(tmp_path / str(number))
            time.sleep(0.001)
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        os.mkdir(tmp_path / "last")

    assert confined(act, ("create", tmp_path)) == "allowed"
    assert (tmp_path / "last").is_dir()
