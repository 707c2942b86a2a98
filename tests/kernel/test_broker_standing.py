"""The broker acts as its caller would: with its umask, and never with more than its identity."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from kernel.conftest import Launch

pytestmark = pytest.mark.needs("landlock", "landlock-truncate", "seccomp")

# Each makes files and folders under changing umasks: alone, in threads, in children.
SCRIPTS = {
    "none is changed": "make('a')",
    "changed and changed back": """
make('a'); old = os.umask(0o022); make('b'); os.umask(old); make('c'); os.umask(0); make('d')""",
    "only asked for": "os.umask(os.umask(0)); make('a'); make('b')",
    "a child's is its own": """
os.umask(0o027)
if os.fork() == 0:
    make('a'); os.umask(0o002); make('b'); os._exit(0)
os.wait(); make('c')
if os.fork() == 0:
    make('d'); os._exit(0)
os.wait()""",
    "threads share theirs": """
def other():
    make('a'); os.umask(0o007); make('b')
make('c'); thread = threading.Thread(target=other); thread.start(); thread.join(); make('d')
thread = threading.Thread(target=make, args=('e',)); thread.start(); thread.join()""",
    "it lives through an exec": """
os.umask(0o025); make('a')
os.execv(sys.executable, [sys.executable, '-I', '-c', MAKE + "make('b')"])""",
}
MAKE = """
import os, sys, threading
def make(name):
    os.close(os.open(f"{name}-open", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o777))
    os.mkdir(f"{name}-folder", 0o777)
    os.mkfifo(f"{name}-fifo", 0o777)
"""


def modes(folder: Path) -> dict[str, int]:
    return {each.name: each.stat().st_mode for each in folder.iterdir()}


@pytest.mark.parametrize("case", SCRIPTS)
@pytest.mark.parametrize("looked_at", [(), ("--trace", "/dev/null")], ids=["plain", "traced"])
def test_what_is_made_has_the_mode_that_its_umask_says(
    case: str, looked_at: tuple[str, ...], launch: Launch, tmp_path: Path
) -> None:
    free, confined = tmp_path / "free", tmp_path / "confined"
    free.mkdir()
    confined.mkdir()
    command = (sys.executable, "-I", "-c", f"MAKE = {MAKE!r}\n{MAKE}\n{SCRIPTS[case]}")
    shell = ["sh", "-c", 'umask 077; exec "$@"', "sh", *command]  # what every command begins with
    subprocess.run(shell, cwd=free, check=True)
    rules = ("--create", confined, "--execute", sys.executable)
    result = launch(*looked_at, *rules, "--", *command, cwd=confined)
    assert (result.returncode, result.stderr) == (0, "")
    assert modes(free)
    assert modes(confined) == modes(free)


BECOMES = """
import os
def attempt(name):
    try:
        os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        print("made", flush=True)
    except PermissionError:
        print("refused", flush=True)
attempt("first")
if os.fork() == 0:
    {become}
    attempt("second")
    os._exit(0)
os.wait()
attempt("third")
"""


@pytest.mark.needs("root")
@pytest.mark.parametrize(
    "become", ["os.setuid(65534)", "os.setgid(65534)", "os.setresuid(-1, 65534, -1)",
               "os.setregid(-1, 65534)", "os.seteuid(65534)"],
)  # fmt: skip
def test_whoever_has_become_somebody_else_gets_nothing_of_the_brokers(
    become: str, launch: Launch, tmp_path: Path
) -> None:
    command = (sys.executable, "-I", "-c", BECOMES.format(become=become))
    os.chmod(tmp_path, 0o700)
    result = launch("--create", tmp_path, "--", *command, cwd=tmp_path)
    assert result.stdout.split() == ["made", "refused", "made"]


GIVE_UP = """import ctypes, struct
    header, kept = struct.pack("Ii", 0x20080522, 0), struct.pack("6I", {0}, {0}, 0, 0, 0, 0)
    assert ctypes.CDLL(None, use_errno=True).syscall(126, header, kept) == 0"""


@pytest.mark.needs("root")
@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the number of the call is this one's")
@pytest.mark.parametrize("looked_at", [(), ("--trace", "/dev/null")], ids=["plain", "traced"])
@pytest.mark.parametrize(("kept", "outcome"), [(0, "refused"), (0x4FF, "made")])
def test_a_right_that_was_given_up_is_not_the_brokers_to_use(
    kept: int, outcome: str, looked_at: tuple[str, ...], launch: Launch, tmp_path: Path
) -> None:
    """A folder of another user is closed to root without its capabilities; 0x4FF is all of them."""
    folder = tmp_path / "another's"
    folder.mkdir(mode=0o700)
    os.chown(folder, 65534, 65534)
    command = (sys.executable, "-I", "-c", BECOMES.format(become=GIVE_UP.format(kept)))
    free = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    assert free.stdout.split() == ["made", outcome, "made"]
    for each in folder.iterdir():
        each.unlink()
    result = launch(*looked_at, "--create", folder, "--", *command, cwd=folder)
    assert result.stdout.split() == ["made", outcome, "made"]
