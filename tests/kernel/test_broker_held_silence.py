"""Whoever is asked says nothing, or does not even listen: the run goes on all the same."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import socket
import sys
from typing import TYPE_CHECKING

import pytest
from kernel.people import answering

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kernel.conftest import Launch

pytestmark = pytest.mark.needs("landlock", "landlock-truncate", "seccomp")

SMALL = 4608  # bytes: the least that a socket has room for
# More questions than there is room for; meanwhile something that a rule allows.
MANY = """
import contextlib, os, threading, time
def ask(number):
    with contextlib.suppress(PermissionError):
        os.open(f"asked-{number}", os.O_CREAT | os.O_WRONLY)
        print("opened", flush=True)
threads = [threading.Thread(target=ask, args=(number,)) for number in range(60)]
for each in threads:
    each.start()
time.sleep(0.5)
os.close(os.open("own/made", os.O_CREAT | os.O_WRONLY))
print("made", any(each.is_alive() for each in threads), flush=True)
for each in threads:
    each.join()
print("over", flush=True)
"""
ACT = """
import os
try:
    {}
    print("done")
except OSError as error:
    print(type(error).__name__)
"""


@pytest.fixture
def silence() -> Iterator[int]:
    """Yield the socket of somebody who never reads and never says anything."""
    ours, theirs = socket.socketpair()
    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SMALL)
    with ours, theirs:
        yield theirs.fileno()


@contextlib.contextmanager
def leased(file: Path) -> Iterator[None]:
    """Hold a lease: whoever opens the file to write waits for us, three quarters of a minute."""
    before = signal.signal(signal.SIGIO, signal.SIG_IGN)
    held = os.open(file, os.O_RDONLY)
    try:
        fcntl.fcntl(held, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        yield
    finally:
        os.close(held)
        signal.signal(signal.SIGIO, before)


def run(launch: Launch, work: Path, desk: int, script: str, *rules: str | Path) -> str:
    result = launch(
        "--supervised", "--subject", "tool:t", "--ask-fd", str(desk), "--ask-timeout", "3",
        *rules, "--", sys.executable, "-I", "-c", script, cwd=work, keep=(desk,),
    )  # fmt: skip
    return result.stdout + result.stderr


def test_no_answer_in_time_is_a_no(launch: Launch, tmp_path: Path, silence: int) -> None:
    (tmp_path / "file").write_text("content")
    assert "PermissionError" in run(launch, tmp_path, silence, "open('file')")


def test_whoever_does_not_read_keeps_nobody_waiting(
    launch: Launch, tmp_path: Path, silence: int
) -> None:
    (tmp_path / "own").mkdir()
    said = run(launch, tmp_path, silence, MANY, "--create", tmp_path / "own")
    assert said == "made True\nover\n"
    assert sorted(os.listdir(tmp_path)) == ["own"]


@pytest.mark.parametrize(
    "act", ["os.open('file', os.O_WRONLY)", "os.truncate('file', 1)", "open('file', 'w')"]
)
def test_a_lease_keeps_nobody_waiting(act: str, launch: Launch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("content")
    with answering(lambda _: "yes") as (desk, asked), leased(tmp_path / "file"):
        said = run(launch, tmp_path, desk, ACT.format(act))
    assert (said, asked) == ("BlockingIOError\n", ["modify file"])
    with answering(lambda _: "yes") as (desk, _):
        said = run(launch, tmp_path, desk, ACT.format(act))
    assert said == "done\n", "without a lease it works"
