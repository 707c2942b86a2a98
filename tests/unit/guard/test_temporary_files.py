"""Temporary files of guarded code: in a folder of the application, not in one that all share."""

from __future__ import annotations

import os
import subprocess
import tempfile
from typing import TYPE_CHECKING

import pytest

from democrai_osguard import Rule, process_guard_context
from democrai_osguard.directories import temp_dir
from democrai_osguard.refusals import FilesystemDenied

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let nobody have chosen a folder; return the application's own."""
    for name in ("DEMOCRAI_TEMP_DIR", "TMPDIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DEMOCRAI_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path / "cache" / "temp"


def test_what_lies_in_the_folder_that_all_share_is_closed() -> None:
    with tempfile.NamedTemporaryFile(dir="/tmp") as file:
        with process_guard_context("notes", "module"), pytest.raises(FilesystemDenied):
            os.stat(file.name)
        with process_guard_context("notes", "module"), pytest.raises(FilesystemDenied):
            tempfile.mkstemp(dir="/tmp")
        assert os.stat(file.name)


def test_tempfile_finds_the_applications_own_folder(own: Path) -> None:
    before = tempfile.gettempdir()
    with process_guard_context("notes", "module"):
        assert tempfile.gettempdir() == temp_dir() == str(own)
        with tempfile.NamedTemporaryFile() as file, tempfile.TemporaryDirectory() as folder:
            assert {os.path.dirname(file.name), os.path.dirname(folder)} == {str(own)}
    assert own.stat().st_mode & 0o777 == 0o700
    assert tempfile.gettempdir() == before


def test_a_folder_that_somebody_chose_is_kept_where_it_is_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: Path
) -> None:
    chosen = tmp_path / "chosen"
    chosen.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(chosen))
    with process_guard_context("notes", "module", allowed_paths=[chosen]):
        assert tempfile.gettempdir() == str(chosen)
    with process_guard_context("notes", "module"):
        assert tempfile.gettempdir() == str(own)


@pytest.mark.parametrize(("env", "found"), [(None, True), ({}, False)], ids=["inherits", "own"])
def test_a_child_that_inherits_the_environment_finds_it_too(
    env: dict[str, str] | None, found: bool, own: Path
) -> None:
    execute = Rule.of("filesystem", "execute", "/usr/bin")
    with process_guard_context("notes", "module", access=[execute], allow_subprocess=True):
        done = subprocess.run(["/usr/bin/env"], env=env, capture_output=True, text=True, check=True)
    assert (f"TMPDIR={own}" in done.stdout.splitlines()) is found


def test_a_guard_without_runtime_paths_has_none(own: Path) -> None:
    with (
        process_guard_context("notes", "module", include_runtime_paths=False),
        pytest.raises(OSError, match=r"sandbox_filesystem_denied|No usable temporary"),
    ):
        tempfile.mkstemp()
    assert not own.exists()
