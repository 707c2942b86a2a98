"""A yes is for what was there when the question was asked, not for what took its place since."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest
from kernel.people import answering

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kernel.conftest import Launch

pytestmark = pytest.mark.needs("landlock", "landlock-truncate", "seccomp")

ACTS = {
    "read": "open('folder/file').read()",
    "write": "open('folder/file', 'w').write('new')",
    "read and write": "open('folder/file', 'r+').write('new')",
    "chmod": "os.chmod('folder/file', 0o666)",
    "truncate": "os.truncate('folder/file', 0)",
    "create": "os.open('folder/new', os.O_CREAT | os.O_WRONLY)",
    "make a folder": "os.mkdir('folder/new')",
    "make a link": "os.symlink('x', 'folder/new')",
    "remove": "os.unlink('folder/file')",
    "move": "os.rename('folder/file', 'folder/new')",
}
SCRIPT = "import os\ntry:\n    {}\n    print('done')\nexcept OSError:\n    print('refused')"


@pytest.fixture
def work(tmp_path: Path) -> Path:
    for name in ("folder", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
        (tmp_path / name / "file").chmod(0o600)
    return tmp_path


def run(launch: Launch, work: Path, act: str, meanwhile: Callable[[], None]) -> str:
    """Run the act; something happens while its first question waits, and every answer is yes."""
    happened: list[str] = []

    def decide(question: str) -> str:
        if not happened:
            meanwhile()
        happened.append(question)
        return "once"

    with answering(decide) as (desk, _):
        result = launch(
            "--supervised", "--subject", "tool:t", "--ask-fd", str(desk),
            "--", sys.executable, "-I", "-c", SCRIPT.format(ACTS[act]), cwd=work, keep=(desk,),
        )  # fmt: skip
    assert happened, result.stderr
    return result.stdout


def state(folder: Path) -> list[tuple[str, int, str]]:
    return [(each.name, each.stat().st_mode, each.read_text()) for each in folder.iterdir()]


@pytest.mark.parametrize("act", ACTS)
def test_an_object_that_took_the_place_of_another_was_not_approved(
    act: str, launch: Launch, work: Path
) -> None:
    def swap() -> None:
        (work / "folder").rename(work / "before")
        (work / "other").rename(work / "folder")

    before = state(work / "other")
    assert run(launch, work, act, swap) == "refused\n"
    assert state(work / "folder") == before


@pytest.mark.parametrize("act", ["read", "write", "chmod", "truncate", "remove", "move"])
def test_a_hard_link_that_took_the_place_of_a_file_was_not_approved(
    act: str, launch: Launch, work: Path
) -> None:
    def swap() -> None:
        (work / "folder/file").unlink()
        os.link(work / "other/file", work / "folder/file")

    before = state(work / "other")
    assert run(launch, work, act, swap) == "refused\n"
    assert state(work / "folder") == before


@pytest.mark.parametrize("act", ACTS)
def test_what_stays_is_done(act: str, launch: Launch, work: Path) -> None:
    assert run(launch, work, act, lambda: None) == "done\n"


def test_an_approved_move_takes_no_rights_from_a_rule_for_something_else(
    launch: Launch, work: Path
) -> None:
    """What was put in the place of a file that may be read is not moved to where it could be."""
    (work / "open").mkdir()
    rules = ["--read", str(work / "folder/file"), "--read", str(work / "open")]
    act = "os.rename('folder/file', 'open/file'); print(open('open/file').read())"
    script = f"import os\nos.listdir('folder')\n{SCRIPT.format(act)}"

    def decide(question: str) -> str:
        if question == "read folder":  # the first: then the run has begun
            (work / "folder/file").unlink()
            os.link(work / "other/file", work / "folder/file")
        return "once"

    with answering(decide) as (desk, asked):
        result = launch(
            "--supervised", "--subject", "tool:t", "--ask-fd", str(desk), *rules,
            "--", sys.executable, "-I", "-c", script, cwd=work, keep=(desk,),
        )  # fmt: skip
    assert result.stdout == "refused\n", result.stderr
    assert asked == ["read folder"]
