"""Temporary files of guarded code: in a folder of the application, not in one that all share."""

from __future__ import annotations

import asyncio
import os
import subprocess
import tempfile
from typing import TYPE_CHECKING

import pytest
from guard.confined import confined

from democrai_osguard import Rule, process_guard_context

if TYPE_CHECKING:
    from pathlib import Path

SHARED = "/tmp"


@pytest.fixture(autouse=True)
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let nobody have chosen a folder; return the application's own."""
    for name in ("DEMOCRAI_TEMP_DIR", "TMPDIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DEMOCRAI_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path / "cache" / "temp"


def _made(folder: str | None = None) -> str:
    """Make a temporary file and remove it; return where it was, or why there is none."""
    try:
        descriptor, path = tempfile.mkstemp(dir=folder)
    except PermissionError as error:
        return str(getattr(error, "code", error))
    except FileNotFoundError:
        return "no folder"
    os.close(descriptor)
    os.unlink(path)
    return os.path.dirname(path)


def test_the_folder_that_all_share_is_closed() -> None:
    def check() -> object:
        before = _made(SHARED)
        with process_guard_context("notes", "module"):
            return [before, _made(SHARED)]

    assert confined(check) == [SHARED, "sandbox_filesystem_denied"]


def test_tempfile_finds_the_applications_own_folder(own: Path) -> None:
    def check() -> object:
        before = _made()
        with process_guard_context("notes", "module"):
            inside = _made()
            with tempfile.TemporaryDirectory() as folder:
                found = [inside, os.path.dirname(folder)]
        return [before, *found, _made()]

    assert confined(check) == [SHARED, str(own), str(own), SHARED]
    assert own.stat().st_mode & 0o777 == 0o700


def test_the_application_keeps_its_folder_after_a_loop_with_guarded_work(own: Path) -> None:
    async def work() -> str:
        with process_guard_context("notes", "module"):
            await asyncio.sleep(0)
            return _made()

    assert confined(lambda: [asyncio.run(work()), _made()]) == [str(own), SHARED]


def test_a_folder_that_somebody_chose_is_kept_where_it_is_open(tmp_path: Path, own: Path) -> None:
    chosen = tmp_path / "chosen"
    chosen.mkdir()

    def check() -> object:
        tempfile.tempdir = str(chosen)
        with process_guard_context("notes", "module", allowed_paths=[chosen]):
            first = _made()
        with process_guard_context("notes", "module"):
            return [first, _made()]

    assert confined(check) == [str(chosen), str(own)]


@pytest.mark.parametrize(("env", "found"), [(None, 1), ({}, 0)], ids=["inherited", "given"])
def test_a_child_that_inherits_the_environment_finds_it_too(
    env: dict[str, str] | None, found: int, own: Path
) -> None:
    execute = Rule.of("filesystem", "execute", "/usr/bin")

    def check() -> object:
        with process_guard_context("notes", "module", access=[execute], allow_subprocess=True):
            done = subprocess.run(["/usr/bin/env"], env=env, capture_output=True, check=True)
        return done.stdout.splitlines().count(os.fsencode(f"TMPDIR={own}"))

    assert confined(check) == found


def test_a_guard_without_runtime_paths_has_none(own: Path) -> None:
    def check() -> object:
        with process_guard_context("notes", "module", include_runtime_paths=False):
            return _made()

    assert confined(check) in {"sandbox_filesystem_denied", "no folder"}
    assert not own.exists()
