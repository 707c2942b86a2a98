"""Standard streams that are closed, full or read by nobody change no exit code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from kernel.conftest import PACKAGES

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.needs("landlock", "seccomp")

# Where a shell can send a stream so that nothing can be written there.
UNWRITABLE = {"closed": ">&-", "full": ">/dev/full", "a pipe that nobody reads": ">&{pipe}"}
HOW_IT_GOES = {
    "usage": (["--bogus", "--", "true"], 64),
    "not found": (["--", "no-such-command"], 127),
    "the command's own": (["--read", "/nonexistent", "--", "sh", "-c", "exit 3"], 3),
    "a supervised command's own": (
        ["--read", "/nonexistent", "--modify", "/tmp", "--", "sh", "-c", "exit 3"], 3,
    ),
    "refused": (["--limit", "files=9000000000000", "--", "true"], 125),
    "found out at the very end": (["--", "FORMATLESS"], 126),
}  # fmt: skip


def with_streams(redirection: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the launcher with streams as a shell redirects them."""
    reader, writer = os.pipe()
    os.close(reader)
    words = ["bash", "-c", f'"$@" {redirection.format(pipe=writer)}', "sh", sys.executable, "-m"]
    words += ["democrai_osguard_launcher", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(PACKAGES)}
    environment.pop("DEMOCRAI_ACCESS", None)
    try:
        return subprocess.run(
            words, env=environment, capture_output=True, text=True, check=False, pass_fds=[writer]
        )
    finally:
        os.close(writer)


@pytest.mark.parametrize("where", UNWRITABLE)
@pytest.mark.parametrize("how", HOW_IT_GOES)
def test_what_cannot_be_said_does_not_change_the_code(tmp_path: Path, where: str, how: str) -> None:
    arguments, code = HOW_IT_GOES[how]
    formatless = tmp_path / "formatless"
    formatless.write_text("no program")
    formatless.chmod(0o755)
    words = [str(formatless) if word == "FORMATLESS" else word for word in arguments]
    heard = with_streams("", *words)
    result = with_streams(f"2{UNWRITABLE[where]}", *words)
    assert (heard.returncode, result.returncode, result.stdout) == (code, code, "")
    assert heard.stderr.startswith("democrai-launch: ")


@pytest.mark.parametrize("where", UNWRITABLE)
@pytest.mark.parametrize("asked", ["--help", "--version", "--explain", "--explain --json"])
def test_an_answer_that_nobody_can_get_is_125_and_one_line(where: str, asked: str) -> None:
    result = with_streams(UNWRITABLE[where], *asked.split())
    assert result.returncode == 125
    assert result.stderr.startswith("democrai-launch: standard output: ")
    assert result.stderr.count("\n") == 1


def test_a_closed_stream_stays_closed_and_nothing_takes_its_place(tmp_path: Path) -> None:
    receipt = tmp_path / "receipt"
    options = ("--receipt", str(receipt), "--read", "/nonexistent")
    script = "import os\ntry: os.fstat(2)\nexcept OSError as error: print(error.strerror)"
    result = with_streams("2>&-", *options, "--", sys.executable, "-c", script)
    assert result.stdout == "Bad file descriptor\n"
    assert json.loads(receipt.read_text())["format"] == 1  # no line of ours in it
