"""One round of the soak: every part at work at once, and nothing left behind."""

from __future__ import annotations

import mmap
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import root.conftest  # noqa: F401 - it knows how to ask this host for its features
from soak import accounts, parts, run
from soak.footprint import Footprint
from soak.span import Span

from democrai_osguard.audit.keeping import KEPT
from democrai_osguard.audit.log import CURRENT

if TYPE_CHECKING:
    import random

pytestmark = pytest.mark.needs(
    "root", "cgroup2", "netns", "bpf", "iptables", "ipset", "landlock", "seccomp"
)

_ENOUGH = 40  # decisions: the first of them are in a file that is gone


def test_a_process_that_grows_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("soak.footprint._SECONDS", 0)
    before = Footprint.of(os.getpid())
    before.must_not_have_grown(os.getpid(), "this")
    held = [bytearray(b"x" * (1 << 24))]
    with pytest.raises(AssertionError, match="leaks memory"):
        before.must_not_have_grown(os.getpid(), "this")
    held.clear()
    with open(os.devnull), pytest.raises(AssertionError, match="leaks descriptors"):
        before.must_not_have_grown(os.getpid(), "this")


def test_what_is_mapped_of_a_file_is_not_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("soak.footprint._SECONDS", 0)
    (tmp_path / "store").write_bytes(b"x" * (1 << 24))
    with (
        (tmp_path / "store").open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
    ):
        before = Footprint.of(os.getpid())
        assert mapped.find(b"y") == -1  # every page is resident now
        before.must_not_have_grown(os.getpid(), "this")


def test_a_part_that_fails_ends_the_others_and_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_folder: Path, _span: Span, _chance: random.Random) -> Counter[str]:
        raise ValueError("broken")

    def lasts(_folder: Path, span: Span, _chance: random.Random) -> Counter[str]:
        while not span.is_over():
            time.sleep(0.01)
        return Counter()

    monkeypatch.setattr(run, "PARTS", {"lasts": lasts, "fails": fails})
    with pytest.raises(run.Failed, match=r"(?s)^fails:.*ValueError: broken"):
        run._together(tmp_path, Span(3600), 1)  # noqa: SLF001 - without the helper's namespace


def test_a_decision_whose_file_went_is_accounted_for(tmp_path: Path) -> None:
    said: list[str] = []
    service = parts.service_of(tmp_path)
    for number in range(_ENOUGH):
        parts.decide(service, number, said.append)
    service.close()
    (tmp_path / "acknowledged").write_text("".join(said))
    assert accounts.decisions(tmp_path)["decisions committed"] == len(said)
    _a_lost_record_is_noticed(tmp_path, KEPT)


def test_everything_at_once_leaves_nothing_behind(tmp_path: Path) -> None:
    program = Path(run.__file__)
    # A process of its own: it takes in the orphans of its parts, and counts every child.
    done = subprocess.run(
        [sys.executable, program, "0", tmp_path], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    for word in (
        "decisions acknowledged",
        "decisions committed",
        "sandboxes",
        "warm launches",
        "decisions on the page",
    ):
        assert re.search(rf"[1-9]\d* {word}", done.stdout)
    for part in ("decisions", "page"):
        _a_left_row_is_noticed(tmp_path / part)
        _a_lost_record_is_noticed(tmp_path / part, CURRENT)
        _a_lost_decision_is_noticed(tmp_path / part)


def _a_left_row_is_noticed(lived: Path) -> None:
    folder = shutil.copytree(lived, lived.parent / f"rows-{lived.name}")
    accounts.rows(folder, 1000)
    with pytest.raises(AssertionError, match="left open"):
        accounts.rows(folder, -1)
    with sqlite3.connect(folder / "state/approvals/approvals.sqlite3") as connection:
        connection.execute("DELETE FROM approval_history WHERE act = 'approve'")
    connection.close()
    with pytest.raises(AssertionError, match="rows were left"):
        accounts.rows(folder, 1000)


def _a_lost_record_is_noticed(folder: Path, name: str) -> None:
    """Take one out of a file of the log, and put it back."""
    log = folder / "state/audit" / name
    whole = log.read_bytes()
    lines = whole.splitlines(keepends=True)
    del lines[len(lines) // 2]  # the last one may be of a process that was killed before it counted
    log.write_bytes(b"".join(lines))
    with pytest.raises(AssertionError):
        accounts.decisions(folder)
    log.write_bytes(whole)
    accounts.decisions(folder)


def _a_lost_decision_is_noticed(folder: Path) -> None:
    with sqlite3.connect(folder / "state/approvals/approvals.sqlite3") as connection:
        connection.execute("DELETE FROM approval_history")
    connection.close()
    with pytest.raises(AssertionError, match="acknowledged and lost"):
        accounts.decisions(folder)
