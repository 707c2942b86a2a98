"""Moves in a supervised run: an approved one never brings a file to where more can be done."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest
from kernel.people import answering

if TYPE_CHECKING:
    from pathlib import Path

    from kernel.conftest import Launch

pytestmark = pytest.mark.needs("landlock", "landlock-truncate", "seccomp")

HIDDEN = "what nobody inside may know"
SCRIPT = """
import os, sys
def attempt(act):
    try:
        print(act())
    except OSError as error:
        print(type(error).__name__, error.errno)
def look(path, flags=os.O_RDONLY):
    return os.read(os.open(path, flags), 64).decode()
"""


@pytest.fixture
def work(tmp_path: Path) -> Path:
    for name in ("secret", "open", "plain"):
        (tmp_path / name).mkdir()
    (tmp_path / "secret/file").write_text(HIDDEN)
    return tmp_path


def run(launch: Launch, work: Path, act: str, *rules: str) -> tuple[str, list[str]]:
    """Run Python lines, with every question but for reads approved; return output and questions."""
    words = [word if word.startswith("-") else str(work / word) for word in rules]
    with answering(lambda asked: "no" if asked.startswith("read") else "once") as (desk, asked):
        result = launch(
            "--supervised", "--subject", "tool:t", "--ask-fd", str(desk), *words,
            "--", sys.executable, "-I", "-c", SCRIPT + act, cwd=work, keep=(desk,),
        )  # fmt: skip
    assert "Traceback" not in result.stderr
    return result.stdout, asked


MOVE = "attempt(lambda: os.rename('secret/file', '{0}/file')); attempt(lambda: look('{0}/file'))"


def test_a_move_to_where_it_could_be_read_is_refused_without_a_question(
    launch: Launch, work: Path
) -> None:
    act = "attempt(lambda: look('secret/file')); " + MOVE.format("open")
    output, asked = run(launch, work, act, "--read", "open", "--delete", "secret")
    assert HIDDEN not in output
    assert "read file" in asked
    assert "create file" not in asked
    assert (work / "secret/file").exists()


@pytest.mark.parametrize("place", ["plain", "secret"])
def test_a_move_to_where_no_more_can_be_done_is_asked_and_done(
    place: str, launch: Launch, work: Path
) -> None:
    act = f"attempt(lambda: os.rename('secret/file', '{place}/new'))"
    output, asked = run(launch, work, act, "--delete", "secret")
    assert (output, asked) == ("None\n", ["create new"])
    assert (work / place / "new").read_text() == HIDDEN


def test_a_move_onto_a_name_that_a_rule_lets_be_read_is_refused(launch: Launch, work: Path) -> None:
    (work / "secret/known").write_text("known")
    act = (
        "attempt(lambda: os.rename('secret/file', 'secret/known')); "
        "attempt(lambda: look('secret/known', os.O_RDWR))"
    )
    output, _ = run(launch, work, act, "--read", "secret/known")
    assert output.endswith("\nknown\n")


def test_a_folder_is_not_moved_to_where_a_name_beneath_it_could_be_read(
    launch: Launch, work: Path
) -> None:
    act = (
        "attempt(lambda: os.rename('secret', 'plain/new')); "
        "attempt(lambda: look('plain/new/file', os.O_RDWR))"
    )
    output, _ = run(launch, work, act, "--read", "plain/new/file")
    assert HIDDEN not in output
    assert (work / "secret/file").exists()


def test_a_link_to_where_it_could_be_read_is_refused(launch: Launch, work: Path) -> None:
    act = MOVE.format("open").replace("os.rename", "os.link")
    rules = ("--read", "open", "--create", "open", "--delete", "secret")
    output, asked = run(launch, work, act, *rules)
    assert HIDDEN not in output
    assert asked == []
    assert not (work / "open/file").exists()
