"""A launch inside a launch is another layer: it narrows, and gives nothing back."""

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

    from kernel.conftest import Launch

pytestmark = pytest.mark.needs("landlock", "landlock-truncate", "seccomp")

AGAIN = """
import os, runpy, sys
os.environ["DEMOCRAI_ACCESS"] = sys.argv.pop(1)
runpy.run_module("democrai_osguard_launcher", run_name="__main__")
"""
CAT = os.path.realpath("/bin/cat")


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / name for name in ("outer", "both", "inner")]
    for path in paths:
        path.write_text(f"{path.name} ")
    return paths


def access(*rules: tuple[str, Path]) -> str:
    items = [
        {"resource_type": "filesystem", "operation": operation, "target": str(target)}
        for operation, target in rules
    ]
    return json.dumps(items)


def nested(rules: str, *command: str | Path) -> list[str]:
    """Return a command that launches another one under these rules and no others."""
    return [sys.executable, "-c", AGAIN, rules, "--", *map(str, command)]


def test_what_both_layers_allow_is_allowed(launch: Launch, files: list[Path]) -> None:
    outer, both, inner = files
    narrow = nested(access(("read", both), ("read", inner)), "cat", *files)
    wide = launch("--read", both, "--read", inner, "--", "cat", *files)
    assert wide.stdout == "both inner "
    rules: list[str | Path] = [
        "--read",
        outer,
        "--read",
        both,
        "--read",
        PACKAGES,
        "--execute",
        CAT,
    ]
    assert launch(*rules, "--", "cat", *files).stdout == "outer both "
    result = launch(*rules, "--", *narrow)
    assert result.stdout == "both ", result.stderr
    assert result.stderr.count("Permission denied") == 2


def test_an_inner_layer_starts_nothing_that_the_outer_one_keeps(
    launch: Launch, files: list[Path]
) -> None:
    rules: list[str | Path] = ["--read", files[1], "--read", PACKAGES]
    result = launch(*rules, "--", *nested(access(("read", files[1])), "cat", files[1]))
    # Before Linux 6.14 only the start itself can tell.
    assert result.returncode in {125, 126}
    assert result.stdout == ""


def test_an_inner_layer_that_needs_a_broker_of_its_own_is_refused_in_one_line(
    launch: Launch, tmp_path: Path
) -> None:
    made = tmp_path / "made"
    making = nested(access(("create", tmp_path)), "mkdir", made)
    program = os.path.realpath("/usr/bin/mkdir")
    options: list[str | Path] = ["--read", PACKAGES, "--execute", program, "--create", tmp_path]
    for outer in (options[:4], options):
        result = launch(*outer, "--", *making)
        assert (result.returncode, result.stdout) == (125, "")
        assert result.stderr.endswith("refused: inside another launch no broker can work\n")
        assert result.stderr.count("\n") == 1
        assert not made.exists()
    alone = subprocess.run(making, capture_output=True, text=True, check=False)
    assert (alone.returncode, alone.stderr) == (0, "")
    assert made.exists()
