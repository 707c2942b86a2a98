"""What nobody is asked about in a supervised run, because no answer could make it happen."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest
from kernel.people import answering

if TYPE_CHECKING:
    from pathlib import Path

    from kernel.conftest import Launch

pytestmark = pytest.mark.needs("landlock", "landlock-truncate", "seccomp")

SCRIPT = """
import os, stat
try:
    {0}
    print("done")
except OSError as error:
    print(type(error).__name__)
"""
UNASKED = {
    "a fifo": "os.open('fifo', os.O_RDONLY | os.O_NONBLOCK)",
    "a fifo, to write": "os.open('fifo', os.O_RDWR)",
    "a fifo that may be made": "os.open('fifo', os.O_RDWR | os.O_CREAT)",
    "a device": "os.open('/dev/loop-control', os.O_RDONLY)",
    "a new device": "os.mknod('new', stat.S_IFCHR | 0o600, os.makedev(1, 3))",
    "an unnamed file": "os.open('.', os.O_TMPFILE | os.O_RDWR)",
    "an open past the cache": "os.open('file', os.O_RDONLY | os.O_DIRECT)",
    "a hard link": "os.link('file', 'new')",
}


@pytest.fixture
def work(tmp_path: Path) -> Path:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "file").write_text("content")
    return tmp_path


def run(launch: Launch, work: Path, act: str) -> tuple[str, list[str]]:
    with answering(lambda _: "yes") as (desk, asked):
        result = launch(
            "--supervised", "--subject", "tool:t", "--ask-fd", str(desk),
            "--", sys.executable, "-I", "-c", SCRIPT.format(act), cwd=work, keep=(desk,),
        )  # fmt: skip
    return result.stdout, asked


@pytest.mark.parametrize("act", UNASKED)
def test_what_the_broker_cannot_do_is_refused_without_a_question(
    act: str, launch: Launch, work: Path
) -> None:
    if act == "a device" and not os.path.exists("/dev/loop-control"):
        pytest.skip("this host has no such device")
    assert run(launch, work, UNASKED[act]) == ("PermissionError\n", [])


@pytest.mark.parametrize(
    ("act", "questions"),
    [
        ("os.open('file', os.O_RDONLY)", ["read file"]),
        ("os.mkfifo('new')", ["create new"]),
        ("os.chmod('fifo', 0o600)", ["modify fifo"]),
    ],
)
def test_what_it_can_do_is_asked(
    act: str, questions: list[str], launch: Launch, work: Path
) -> None:
    assert run(launch, work, act) == ("done\n", questions)


def test_who_is_asked_is_behind_a_socket(launch: Launch) -> None:
    with open(os.devnull, "rb") as file:
        number = file.fileno()
        words = ("--supervised", "--subject", "tool:t", "--ask-fd", str(number), "--", "true")
        result = launch(*words, keep=(number,))
    said = f"democrai-launch: --ask-fd: {number} is not a socket\n"
    assert (result.returncode, result.stderr) == (64, said)
