"""Access mode 3 neither reads nor writes, so Landlock asks for no right: it is refused."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING

import pytest
from kernel.people import answering

if TYPE_CHECKING:
    from pathlib import Path

    from kernel.conftest import Confined, Free, Launch

pytestmark = pytest.mark.needs("landlock", "landlock-truncate", "seccomp")

SCRIPT = """
import os, sys
try:
    print(os.fstat(os.open(sys.argv[1], os.O_ACCMODE)).st_size)
except OSError as error:
    print(type(error).__name__)
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "file").write_text("content")
    return tmp_path / "file"


@pytest.mark.parametrize("path", ["file", "/dev/ptmx"])
def test_what_no_rule_names_is_not_opened(
    path: str, file: Path, free: Free, confined: Confined
) -> None:
    at = file.parent / path
    assert free(lambda: os.open(at, os.O_ACCMODE)) == "allowed"
    assert confined(lambda: os.open(at, os.O_ACCMODE)) == "EACCES"
    assert confined(lambda: os.open(at, os.O_ACCMODE | os.O_PATH)) == "allowed"


def test_nothing_is_seen_of_it_where_looking_is_reading(launch: Launch, file: Path) -> None:
    result = launch("--stat-as-read", "--", sys.executable, "-I", "-c", SCRIPT, file)
    assert result.stdout == "PermissionError\n"


def test_nobody_is_asked_about_it(launch: Launch, file: Path) -> None:
    with answering(lambda _: "yes") as (desk, asked):
        result = launch(
            "--supervised", "--subject", "tool:t", "--ask-fd", str(desk),
            "--", sys.executable, "-I", "-c", SCRIPT, file, keep=(desk,),
        )  # fmt: skip
    assert (result.stdout, asked) == ("PermissionError\n", [])


def test_a_trace_says_that_no_rule_allows_it(launch: Launch, file: Path, tmp_path: Path) -> None:
    words = ("--trace", tmp_path / "trace", "--read", file, "--modify", file)
    result = launch(*words, "--", sys.executable, "-I", "-c", SCRIPT, file)
    assert result.stdout == "PermissionError\n"
    lines = map(json.loads, (tmp_path / "trace").read_text().splitlines()[1:])
    assert [(line["call"], line["missing"]) for line in lines] == [("openat", None)]
