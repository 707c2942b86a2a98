"""One round of the soak: every part at work at once, and nothing left behind."""

from __future__ import annotations

import re
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
import root.conftest  # noqa: F401 - it knows how to ask this host for its features
from soak import accounts, run

pytestmark = pytest.mark.needs(
    "root", "cgroup2", "netns", "bpf", "iptables", "ipset", "landlock", "seccomp"
)


def test_everything_at_once_leaves_nothing_behind(tmp_path: Path) -> None:
    program = Path(run.__file__)
    # A process of its own: it takes in the orphans of its parts, and counts every child.
    done = subprocess.run(
        [sys.executable, program, "0", tmp_path], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    for word in ("decisions acknowledged", "decisions committed", "sandboxes", "warm launches"):
        assert re.search(rf"[1-9]\d* {word}", done.stdout)
    _a_lost_record_is_noticed(tmp_path / "decisions")


def _a_lost_record_is_noticed(folder: Path) -> None:
    """Change what the accounts look at, each time back to what it was."""
    whole = shutil.copytree(folder, folder.parent / "whole")
    log = folder / "audit/audit.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    del lines[len(lines) // 2]  # the last one may be of a process that was killed before it counted
    log.write_bytes(b"".join(lines))
    with pytest.raises(AssertionError):
        accounts.decisions(folder)
    shutil.copy(whole / "audit/audit.jsonl", log)
    accounts.decisions(folder)
    with sqlite3.connect(folder / "store/approvals.sqlite3") as connection:
        connection.execute("DELETE FROM approval_history")
    connection.close()
    with pytest.raises(AssertionError, match="acknowledged and lost"):
        accounts.decisions(folder)
