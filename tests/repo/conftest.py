"""The wheel as users get it, built once and unpacked."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="session")
def source(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Path:
    """Return a copy of the tree: what an earlier build left must not find its way into this one."""
    hidden = shutil.ignore_patterns(
        ".git", ".venv*", ".*cache", ".hypothesis", "build", "dist", "*.egg-info", "__pycache__"
    )
    copy = tmp_path_factory.mktemp("source") / "tree"
    return shutil.copytree(pytestconfig.rootpath, copy, ignore=hidden)


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory, source: Path) -> Path:
    """Return a folder with the contents of the built wheel."""
    made = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(made)]
    subprocess.run([*command, str(source)], check=True, capture_output=True)
    (archive,) = made.glob("*.whl")
    with zipfile.ZipFile(archive) as file:
        file.extractall(made / "contents")
    return made / "contents"
