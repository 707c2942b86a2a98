"""What fails beside other work is looked at once more; what must hold each time is not."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

_UNSTEADY = """
import pathlib

def test_unsteady():
    seen = pathlib.Path("seen")
    steady, _ = seen.exists(), seen.touch()
    assert steady
"""
_ALWAYS = "import pytest\n" + _UNSTEADY.replace("def ", "@pytest.mark.always\ndef ")
_BROKEN = "def test_broken():\n    assert False\n"
_MANY = _UNSTEADY + "".join(f"test_{number} = test_unsteady\n" for number in range(9))


@pytest.mark.parametrize(
    ("tests", "code", "said"),
    [
        (_UNSTEADY, 0, "to be mended"),
        (_BROKEN, 1, "test_broken FAILED"),
        (_ALWAYS, 1, "no second look"),
        (_MANY.replace("seen.touch()", "0"), 1, "too many"),
    ],
    ids=["unsteady", "broken", "always", "many"],
)
def test_a_second_look(tests: str, code: int, said: str, repo: Path, tmp_path: Path) -> None:
    for name in ("conftest.py", "host_features.py"):
        shutil.copy(repo / "tests" / name, tmp_path)
    markers = "markers = always\n    needs\nfilterwarnings = error"
    (tmp_path / "pytest.ini").write_text(f"[pytest]\npythonpath = .\n{markers}\n")
    (tmp_path / "test_it.py").write_text(tests)
    assert _run(tmp_path, _pytest(), "-q", "-o", "cache_dir=cache").returncode == 1
    look = _run(tmp_path, str(repo / "scripts" / "second-look"), _pytest(), "cache")
    assert (look.returncode, said in look.stdout) == (code, True), look.stdout


def _pytest() -> str:
    return os.path.join(os.path.dirname(sys.executable), "pytest")


def _run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
