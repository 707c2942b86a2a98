"""The README's table of kernels says what the launcher's table of Landlock's rights says."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from democrai_osguard_launcher import landlock

if TYPE_CHECKING:
    from pathlib import Path

ROW = re.compile(r"^\| [0-9][^|]* \| ([0-9, ]+) \|(.+)\|$", re.MULTILINE)
NEW_IN = {1, 2, 3, 4, 6, 9, 10}  # ABIs that change a column


def _rows(repo: Path) -> dict[int, list[str]]:
    readme = (repo / "README.md").read_text(encoding="utf-8")
    return {
        int(abi): [cell.strip() for cell in cells.split("|")]
        for abis, cells in ROW.findall(readme)
        for abi in abis.split(",")
    }


def test_every_abi_that_changes_something_has_a_row(repo: Path) -> None:
    assert set(_rows(repo)) >= NEW_IN


@pytest.mark.parametrize("abi", sorted(NEW_IN))
def test_a_row_says_what_landlock_can_judge(repo: Path, abi: int) -> None:
    files, ports, scopes, sockets, datagrams = _rows(repo)[abi]
    able = landlock.abilities(abi)
    assert ("moves" in files) == (not able.filesystem & landlock.REFER)
    assert ("truncation" in files) == (not able.filesystem & landlock.TRUNCATE)
    assert (ports == "by rule") == bool(able.network & landlock.CONNECT_TCP)
    assert (scopes == "stay inside") == bool(able.scopes & landlock.SCOPE_SIGNAL)
    assert (sockets == "by rule") == bool(able.filesystem & landlock.RESOLVE_UNIX)
    assert (datagrams == "by rule") == bool(able.network & landlock.CONNECT_SEND_UDP)
