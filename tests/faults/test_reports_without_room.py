"""A receipt, a trace or an answer that finds no room: said, and never half a one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from typing import TYPE_CHECKING

import pytest
from approvals.small_disk import on_a_small_disk
from command_line import osguard

from democrai_osguard_launcher.report import Lines

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from approvals.small_disk import SmallDisk

confines = pytest.mark.needs("root", "landlock", "landlock-truncate", "seccomp")
FULL = "No space left on device"


@pytest.fixture
def place() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="osguard-disk-") as folder:
        yield folder


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    file = tmp_path / "secret"
    file.write_text("closed")
    return file


def launch(*arguments: str) -> list[object]:
    """Run the launcher; return its exit code, and what it and the command wrote."""
    done = subprocess.run(
        [sys.executable, "-m", "democrai_osguard_launcher", "--execute=/usr/bin", *arguments],
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    return [done.returncode, done.stdout, done.stderr]


def leave(disk: SmallDisk, room: int) -> None:
    """Fill a disk but for a number of bytes, which must be whole pages."""
    spare = f"{disk.folder}/spare"
    with open(spare, "wb") as file:
        file.write(bytes(room))
    disk.fill()
    os.unlink(spare)


@confines
@pytest.mark.parametrize("room", [0, 4096])
def test_a_command_whose_receipt_finds_no_room_does_not_start(place: str, room: int) -> None:
    def act(disk: SmallDisk) -> object:
        leave(disk, room)
        rules = [f"--read=/nonexistent/{number}/{'x' * 80}" for number in range(100)]
        return launch(*rules, f"--receipt={disk.folder}/receipt", "--", "echo", "ran")

    code, printed, said = on_a_small_disk(place, "64k", act)
    assert (code, printed) == (125, "")
    assert said.splitlines()[-1].endswith(f"refused: --receipt: {place}/receipt: {FULL}")


@confines
def test_a_trace_that_finds_no_room_at_all_is_said_before_the_command_starts(place: str) -> None:
    def act(disk: SmallDisk) -> object:
        leave(disk, 0)
        return launch(f"--trace={disk.folder}/trace", "--", "echo", "ran")

    code, printed, said = on_a_small_disk(place, "64k", act)
    assert (code, printed) == (64, "")
    assert said == f"democrai-launch: --trace: {place}/trace: {FULL}\n"


@confines
def test_a_trace_that_fills_the_disk_ends_whole_and_the_command_goes_on_held(
    place: str, secret: Path
) -> None:
    script = f"for each in $(seq 60); do cat {secret} 2>/dev/null; done; echo through"

    def act(disk: SmallDisk) -> object:
        leave(disk, 4096)
        trace = f"{disk.folder}/trace"
        done = launch(f"--trace={trace}", "--", "sh", "-c", script)
        why = osguard("why", trace)
        with open(trace, encoding="utf-8") as file:
            return [*done, file.read(), why.returncode, why.stdout]

    code, printed, said, trace, why_code, why = on_a_small_disk(place, "64k", act)
    assert (code, printed) == (0, "through\n")
    assert said == ""
    lines = [json.loads(line) for line in trace.splitlines()]
    assert lines[-1] == {"more": "was left out"}
    assert len(lines) > 5
    assert why_code == 1  # something was refused
    assert str(secret) in why
    assert why.endswith("there was more.\n")


def test_a_line_for_a_pipe_that_nobody_reads_ends_nothing_else() -> None:
    reader, writer = os.pipe()
    lines = Lines(writer, "{}")
    assert lines.add('{"one": 1}')
    os.close(reader)
    assert not lines.add('{"two": 2}')
    os.close(writer)


@pytest.mark.parametrize("command", [["status"], ["manifest", "--help"], ["explain", "--help"]])
def test_an_answer_that_cannot_be_written_is_one_line(command: list[str]) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-I", "-m", "democrai_osguard.cli.main", *command],
            stdout=full, stderr=subprocess.PIPE, text=True, check=False, timeout=120,
        )  # fmt: skip
    assert done.returncode == 64
    assert done.stderr == f"democrai-osguard: standard output: {FULL}\n"
