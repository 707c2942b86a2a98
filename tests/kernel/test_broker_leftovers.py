"""What is left: open in the broker, of calls that go wrong, and of a command, without one."""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from kernel.conftest import in_a_fork
from kernel.people import LAUNCHER
from kernel.techniques import LIBC

from democrai_osguard_launcher.facts import gather
from democrai_osguard_launcher.plan import make_plan
from democrai_osguard_launcher.rules import make_rule

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kernel.conftest import Confined

pytestmark = pytest.mark.needs("landlock", "landlock-truncate", "seccomp")

TIMES = 40
ADDRESS = b"\x02\x00\x00\x09\x7f\x00\x00\x01" + bytes(8)  # 127.0.0.1:9
CREATE = os.O_CREAT | os.O_WRONLY
LONG = "d" * 250


def kept_open(act: Callable[[], object]) -> int:
    """Do something that fails, many times; return how much more the broker has open then."""
    folder = f"/proc/{os.getppid()}/fd"
    with contextlib.suppress(OSError):
        act()
    before = len(os.listdir(folder))
    for _ in range(TIMES):
        with contextlib.suppress(OSError):
            act()
    return len(os.listdir(folder)) - before


def checked(act: Callable[[], object]) -> Callable[[], None]:
    def run() -> None:
        kept = kept_open(act)
        assert kept < TIMES // 2, f"{kept} more are open"

    return run


NO_SOCKETS: dict[str, Callable[[], object]] = {
    "connect": lambda: LIBC.connect(0, ADDRESS, len(ADDRESS)),
    "sendto": lambda: LIBC.sendto(0, b"x", ctypes.c_size_t(1), 0, ADDRESS, len(ADDRESS)),
    "sendmsg": lambda: LIBC.sendmsg(0, bytes(56), 0),
    "sendmmsg": lambda: LIBC.sendmmsg(0, bytes(64), 1, 0),
}


@pytest.mark.parametrize("name", NO_SOCKETS)
def test_a_descriptor_that_is_no_socket(name: str, confined: Confined) -> None:
    grants = ("connect", "127.0.0.1:9"), ("read", "/proc")
    assert confined(checked(NO_SOCKETS[name]), *grants) == "allowed"


def test_descriptors_that_cannot_be_sent(confined: Confined) -> None:
    def act() -> None:
        ends = socket.socketpair()
        bad = b"".join(number.to_bytes(4, "little") for number in (0, 1, 999))
        try:
            ends[0].sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, bad)])
        finally:
            for end in ends:
                end.close()

    grants = ("connect", "127.0.0.1:9"), ("read", "/proc")
    assert confined(checked(act), *grants) == "allowed"


@pytest.fixture
def deep(tmp_path: Path) -> Path:
    """Return a folder beneath which there is one whose path is longer than can be told."""
    here = os.getcwd()
    try:
        os.chdir(tmp_path)
        for _ in range(4096 // len(LONG) + 1):
            os.mkdir(LONG)
            os.chdir(LONG)
    finally:
        os.chdir(here)
    return tmp_path


def go_down(place: Path) -> None:
    os.chdir(place)
    while os.path.isdir(LONG):
        os.chdir(LONG)


DEEP: dict[str, tuple[str, Callable[[], object]]] = {
    "open": ("create", lambda: os.open("new", CREATE)),
    "mkdir": ("create", lambda: os.mkdir("new")),
    "rmdir": ("delete", lambda: os.rmdir("new")),
    "chmod": ("modify", lambda: os.chmod(".", 0o700)),
}


@pytest.mark.parametrize("name", DEEP)
def test_a_path_that_is_too_long_to_be_told(name: str, deep: Path, confined: Confined) -> None:
    operation, act = DEEP[name]

    def run() -> None:
        go_down(deep)
        checked(act)()

    assert confined(run, (operation, deep), ("read", "/proc"), ("read", deep)) == "allowed"


def test_looking_at_a_path_that_is_too_long_to_be_told(deep: Path) -> None:
    rules = [make_rule("filesystem", "read", str(each), at="test") for each in ("/proc", deep)]
    plan = make_plan(rules, gather(rules, None, os.environ.get("PATH")), stat_as_read=True)

    def run() -> None:
        os.chdir(deep)
        for _ in range(4096 // len(LONG) + 1):
            os.chdir(LONG)
        checked(lambda: os.stat("."))()

    assert in_a_fork(run, plan) == "allowed"


def test_a_broker_with_little_room_serves_many_threads(tmp_path: Path) -> None:
    """What it keeps open to be quick is little, where it may open little."""
    script = (
        "import os, threading\n"
        "def make(worker):\n"
        "    for number in range(20):\n"
        "        os.close(os.open(f'{worker}-{number}', os.O_CREAT | os.O_EXCL | os.O_WRONLY))\n"
        "threads = [threading.Thread(target=make, args=(n,)) for n in range(20)]\n"
        "[each.start() for each in threads]; [each.join() for each in threads]\n"
    )
    launch = [*LAUNCHER, "--create", str(tmp_path), "--", sys.executable, "-I", "-c", script]
    words = ["sh", "-c", 'ulimit -n 20; exec "$@"', "sh", *launch]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(os.listdir(tmp_path)) == 400


# Waits until nobody answers its brokered calls any more, if anybody does, and then offers to.
ORPHAN = """
import ctypes, errno, os, struct, sys, time
if os.fork():
    os._exit(0)
libc = ctypes.CDLL(None, use_errno=True)
code = ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, 0x7FFF0000), 8)
program = ctypes.create_string_buffer(struct.pack("HP", 1, ctypes.addressof(code)), 16)
libc.prctl(38, 1, 0, 0, 0)
def load(flags):
    number = ctypes.c_long({"x86_64": 317, "aarch64": 277}[os.uname().machine])
    failed = libc.syscall(number, ctypes.c_long(1), ctypes.c_long(flags), program) < 0
    return errno.errorcode[ctypes.get_errno()] if failed else "loaded"
def chmod():
    failed = libc.chmod(sys.argv[1].encode(), 0o777)
    return errno.errorcode[ctypes.get_errno()] if failed else "changed"
early = load(8)
for _ in range(600):
    if (changed := chmod()) in {"changed", "ENOSYS"}:
        break
    time.sleep(0.05)
print(early, changed, load(8), load(1 << 32 | 8), load(8 | 16), load(0), load(1), flush=True)
"""
SUPERVISORS: dict[str, list[str]] = {
    "plain": [],
    "traced": ["--trace", os.devnull],
    "held": ["--supervised", "--subject", "tool:orphan", "--ask-timeout", "1"],
}


@pytest.mark.parametrize("options", SUPERVISORS.values(), ids=SUPERVISORS)
def test_what_outlives_the_broker_cannot_take_its_place(options: list[str], tmp_path: Path) -> None:
    victim, own = tmp_path / "victim", tmp_path / "own"
    victim.touch(0o600)
    own.mkdir()
    orphan = [sys.executable, "-I", "-c", ORPHAN, str(victim)]
    launch = [*LAUNCHER, *options, "--modify", str(own), "--", *orphan]
    own_state = {**os.environ, "DEMOCRAI_STATE_DIR": str(tmp_path / "state")}
    done = subprocess.run(launch, env=own_state, capture_output=True, text=True, check=False)
    refused = ["EPERM"] * 3
    assert done.stdout.split() == ["EPERM", "ENOSYS", *refused, "loaded", "loaded"], done.stderr
    assert victim.stat().st_mode & 0o777 == 0o600
    free = subprocess.run(orphan, capture_output=True, text=True, check=False).stdout.split()
    assert free == ["loaded", "changed", "EBUSY", "EBUSY", "EBUSY", "loaded", "loaded"]
