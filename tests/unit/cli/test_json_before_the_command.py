"""`--json` means the same before a command as behind it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from command_line import osguard

if TYPE_CHECKING:
    from pathlib import Path


def test_a_command_takes_it_from_before_its_name(tmp_path: Path) -> None:
    file = tmp_path / "manifest.json"
    file.write_text("{}")
    words = ("explain", "--manifest", str(file), "--subject", "module:a", "filesystem", "read", "/")
    before, behind = osguard("--json", *words), osguard(*words, "--json")
    assert json.loads(before.stdout)["decision"] == "requires_approval"
    assert (before.returncode, before.stdout) == (behind.returncode, behind.stdout)


def test_so_does_a_command_of_two_words(tmp_path: Path) -> None:
    file = tmp_path / "manifest.json"
    file.write_text("{}")
    done = osguard("--json", "manifest", "check", str(file))
    assert json.loads(done.stdout)["valid"] is True
    assert osguard("manifest", "check", str(file)).stdout.startswith(f"{file}: sound")


@pytest.mark.parametrize("name", ["serve", "demo"])
def test_a_command_without_it_says_so(name: str) -> None:
    done = osguard("--json", name)
    assert (done.returncode, done.stdout) == (64, "")
    assert done.stderr == f"democrai-osguard: {name} has no --json\n"
