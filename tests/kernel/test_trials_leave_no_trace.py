"""What is tried before a command runs changes nothing, whatever stands where it is tried."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from kernel.conftest import Launch

pytestmark = pytest.mark.needs("landlock", "seccomp")
OPERATIONS = ("read", "create", "modify", "delete")


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """Return a folder that holds links of every kind, and nothing else."""
    for name in ("work", "elsewhere", "elsewhere/full/within"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "elsewhere/file").write_text("content")
    for name, leads_to in (
        ("a folder", "../elsewhere/full"),
        ("an empty folder", "../elsewhere/full/within"),
        ("a file", "../elsewhere/file"),
        ("nothing", "../elsewhere/missing"),
    ):
        (tmp_path / "work" / name).symlink_to(leads_to)
    return tmp_path / "work"


def everything_below(folder: Path) -> list[str]:
    return sorted(
        f"{place}/{name}" for place, folders, files in os.walk(folder) for name in folders + files
    )


@pytest.mark.parametrize("operations", [*((each,) for each in OPERATIONS), OPERATIONS])
@pytest.mark.parametrize("at", ["the folder", "within it", "a link to it"])
def test_links_stay_as_they_are(
    operations: tuple[str, ...], at: str, work: Path, launch: Launch
) -> None:
    link = work.parent / "link"
    link.symlink_to(work)
    rule = link if at == "a link to it" else work
    before = everything_below(work.parent)
    access = [
        {"resource_type": "filesystem", "operation": each, "target": str(rule)}
        for each in operations
    ]
    cwd = work if at == "within it" else work.parent
    result = launch("--", "true", access=json.dumps(access), cwd=cwd)
    assert (result.returncode, result.stderr) == (0, "")
    assert everything_below(work.parent) == before


def test_a_working_folder_of_links_stays_as_it_is(work: Path, launch: Launch) -> None:
    before = everything_below(work.parent)
    assert launch("--create", work.parent / "elsewhere", "--", "true", cwd=work).returncode == 0
    assert everything_below(work.parent) == before
