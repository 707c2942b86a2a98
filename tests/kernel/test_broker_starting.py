"""Programs under the broker: judged by what really runs, whatever the call says by then."""

# ruff: noqa: S606 - starting programs is the act itself

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from host_features import lack
from kernel.conftest import PR_SET_DUMPABLE
from kernel.techniques import LIBC
from kernel.test_broker_races import AT_FDCWD, ORPHAN, RENAME_EXCHANGE, meanwhile

if TYPE_CHECKING:
    from collections.abc import Callable

    from kernel.conftest import Confined, Free, Grant, Launch

LOADER = "/lib64/ld-linux-x86-64.so.2"
pytestmark = [
    pytest.mark.needs("landlock", "landlock-truncate", "seccomp"),
    pytest.mark.skipif(not os.path.exists(LOADER), reason="another loader, another machine"),
]

AT_EMPTY_PATH = 0x1000
EXECVEAT = 322
DEADLINE = 120.0
KILLS = 5  # so often must the first look be fooled, to say that the second one holds
TRUE = "/usr/bin/true"  # may be read in these tests, and not started
WORDS = [LOADER, TRUE]


def outcome(start: Callable[[], object]) -> int:
    """Start something in a child; return its exit code, the errno that it met, or its signal."""
    child = os.fork()
    if child == 0:
        code = 99
        try:
            start()
        except OSError as error:
            code = error.errno or code
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def in_a_child(start: Callable[[], object]) -> None:
    code = outcome(start)
    if code:
        raise OSError(code, os.strerror(abs(code)))


def by_descriptor(flags: int) -> None:
    held = os.open(LOADER, flags)
    arguments = (ctypes.c_char_p * 3)(*map(os.fsencode, WORDS), None)
    LIBC.syscall(EXECVEAT, held, b"", arguments, None, AT_EMPTY_PATH)
    code = ctypes.get_errno()
    raise OSError(code, os.strerror(code))


def through_proc() -> None:
    held = os.open(LOADER, os.O_RDONLY)
    os.execv(f"/proc/self/fd/{held}", WORDS)


WAYS: dict[str, Callable[[Path], None]] = {
    "by its name": lambda _: os.execv(LOADER, WORDS),
    "by its real name": lambda _: os.execv(os.path.realpath(LOADER), WORDS),
    "through a link": lambda at: os.execv(at / "link", WORDS),
    "through a folder of descriptors": lambda _: through_proc(),
    "by a descriptor": lambda _: by_descriptor(os.O_RDONLY),
    "by a descriptor without rights": lambda _: by_descriptor(os.O_PATH),
    "as an interpreter": lambda at: os.execv(at / "script", ["x"]),
    "as an interpreter's interpreter": lambda at: os.execv(at / "outer", ["x"]),
}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "link").symlink_to(LOADER)
    (tmp_path / "script").write_text(f"#!{LOADER} {TRUE}\n")
    (tmp_path / "outer").write_text(f"#!{tmp_path / 'script'}\n")
    for name in ("script", "outer"):
        (tmp_path / name).chmod(0o755)
    return tmp_path


def rules(at: Path) -> tuple[Grant, ...]:
    """Return rules that need a broker, and let the scripts be started and `true` be read."""
    return (("create", at), ("read", TRUE), ("execute", at / "script"), ("execute", at / "outer"))


@pytest.mark.parametrize("way", WAYS)
def test_the_loader_is_not_started_as_a_program(
    way: str, place: Path, confined: Confined, free: Free
) -> None:
    def act() -> None:
        in_a_child(lambda: WAYS[way](place))

    assert free(act) == "allowed"
    assert confined(act, *rules(place)) == "EACCES"
    assert confined(act, *rules(place), ("execute", LOADER)) == "allowed"
    assert confined(act, *rules(place)[1:]) == "allowed", "without a broker nothing can tell"


def test_the_loader_still_loads(place: Path, launch: Launch) -> None:
    result = launch("--create", place, "--execute", TRUE, "--", "sh", "-c", f"{TRUE} && echo yes")
    assert (result.stdout, result.stderr) == ("yes\n", "")


def test_a_loader_that_is_the_command_was_asked_for(place: Path, launch: Launch) -> None:
    result = launch("--create", place, "--read", "/usr/bin", "--", LOADER, "/usr/bin/echo", "yes")
    assert (result.stdout, result.stderr) == ("yes\n", "")


def test_a_program_that_cannot_be_read_is_refused_and_not_ended(
    confined: Confined, free: Free
) -> None:
    user = 65534 if os.geteuid() == 0 else None  # from root nothing can be hidden
    with tempfile.TemporaryDirectory() as place:
        os.chmod(place, 0o755)
        hidden = shutil.copy(TRUE, place)
        os.chmod(hidden, 0o111)
        grants = (("execute", hidden), ("create", place))

        def act() -> None:
            in_a_child(lambda: os.execv(hidden, ["x"]))

        assert free(act, uid=user) == "allowed"
        assert confined(act, *grants[:1], uid=user) == "allowed", "nobody looks there"
        assert confined(act, *grants, uid=user) == "EACCES"


def test_what_changes_after_the_look_is_ended_before_it_runs(
    place: Path, confined: Confined, free: Free
) -> None:
    """A name that leads to a program and to the loader by turns, under the broker's eyes."""
    way, other, made = place / "way", place / "other", place / "made"
    (place / "idle").write_bytes(Path(TRUE).read_bytes())
    (place / "idle").chmod(0o755)
    way.symlink_to(place / "idle")
    other.symlink_to(LOADER)
    names = os.fsencode(way), os.fsencode(other)
    words = ["x", "/usr/bin/mkdir", str(made)]  # to `true` they mean nothing

    def swap() -> None:
        LIBC.renameat2(AT_FDCWD, names[0], AT_FDCWD, names[1], RENAME_EXCHANGE)

    def act() -> None:
        kills, end = 0, time.monotonic() + DEADLINE
        while kills < KILLS:
            kills += outcome(lambda: os.execv(way, words)) == -signal.SIGKILL
            assert not made.exists()
            assert time.monotonic() < end, f"only {kills} got past the first look"

    def until_won() -> None:
        while not made.exists():
            outcome(lambda: os.execv(way, words))

    grants: list[Grant] = [("create", place), ("read", "/usr/bin"), ("execute", place / "idle")]
    with meanwhile(swap):
        assert confined(act, *grants) == "allowed"
        assert free(until_won) == "allowed"


MEMORY = """
import os, sys
try:
    os.execve(int(sys.argv[1]), ["x"], {})
except OSError as error:
    print(type(error).__name__)
"""


def test_a_file_of_memory_that_was_handed_in_is_not_started(
    place: Path, launch: Launch, free: Free
) -> None:
    """Landlock does not see it, and the command cannot make one: this one comes from outside."""
    memory = os.memfd_create("program", 0)
    try:
        with open("/usr/bin/env", "rb") as program, open(memory, "wb", closefd=False) as copy:
            shutil.copyfileobj(program, copy)
        words = ("--keep-fd", str(memory), "--", sys.executable, "-I", "-c", MEMORY, str(memory))
        assert launch("--create", place, *words, keep=(memory,)).stdout == "PermissionError\n"
        assert launch(*words, keep=(memory,)).stdout == "", "without a broker it starts"
        assert free(lambda: in_a_child(lambda: os.execve(memory, ["x"], {}))) == "allowed"
    finally:
        os.close(memory)


def test_a_program_that_no_rule_lets_start_is_refused_as_ever(
    place: Path, confined: Confined, free: Free
) -> None:
    def act() -> None:
        in_a_child(lambda: os.execv(TRUE, ["x"]))

    assert free(act) == "allowed"
    assert confined(act, *rules(place)) == "EACCES"
    assert confined(act, *rules(place), ("execute", TRUE)) == "allowed"


def _small_program() -> bytes:
    """Return a 32-bit program that ends at once, and well."""
    code = bytes.fromhex("b80100000031dbcd80")  # exit(0) by interrupt
    base, start = 0x08048000, 52 + 32
    head = b"\x7fELF\x01\x01\x01".ljust(16, b"\0")
    head += struct.pack("<HHIIIIIHHHHHH", 2, 3, 1, base + start, 52, 0, 0, 52, 32, 1, 0, 0, 0)
    size = start + len(code)
    return head + struct.pack("<IIIIIIII", 1, 0, base, base, size, size, 5, 0x1000) + code


def test_a_32_bit_program_is_refused(place: Path, confined: Confined) -> None:
    small = place / "small"
    small.write_bytes(_small_program())
    small.chmod(0o755)

    def ended() -> int:
        return outcome(lambda: os.execv(small, ["x"]))

    def killed() -> None:
        assert ended() == -signal.SIGSYS

    if ended() == errno.ENOEXEC:
        lack("32-bit programs")
    assert ended() == 0
    assert confined(killed, ("create", place), ("execute", small)) == "allowed"


def test_a_caller_that_hides_its_memory_starts_nothing_and_does_not_hang(
    place: Path, confined: Confined
) -> None:
    def hidden() -> None:
        LIBC.prctl(PR_SET_DUMPABLE, 0)
        os.execv(TRUE, ["x"])

    user = 65534 if os.geteuid() == 0 else None  # from root nothing can be hidden
    grants: tuple[Grant, ...] = (("create", place), ("execute", TRUE))
    assert confined(lambda: in_a_child(hidden), *grants, uid=user) == "EACCES"
    shown = confined(lambda: in_a_child(lambda: os.execv(TRUE, ["x"])), *grants, uid=user)
    assert shown == "allowed"


def test_when_the_broker_is_killed_nothing_more_is_started(place: Path) -> None:
    act = "os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY)"
    assert act in ORPHAN
    script = ORPHAN.replace(act, f"os.execv('{TRUE}', ['x'])")
    words = [sys.executable, "-I", "-m", "democrai_osguard_launcher", "--create", str(place)]
    words += ["--execute", TRUE, "--read", "/proc", "--", sys.executable, "-I", "-c", script, "x"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.kill()
    process.wait()
    assert process.stdout.read() == errno.errorcode[errno.ENOSYS] + "\n"
    process.stdout.close()
