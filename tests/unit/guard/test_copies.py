"""To copy is to read the source and to create the destination, and nothing else."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Any

import pytest
from guard.confined import confined

from democrai_osguard.access import Rule
from democrai_osguard.guard import process_guard_context

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DEMOCRAI_TEMP_DIR", str(tmp_path / "temp"))
    for name in ("from/deep", "to"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "from/deep/file").write_text("x")
    (tmp_path / "from/deep/file").chmod(0o640)
    os.utime(tmp_path / "from/deep/file", (5, 5))
    (tmp_path / "to/old").write_text("old")
    return tmp_path


def guarded(place: Path, work: Callable[[], object]) -> Any:  # noqa: ANN401 - what the work returns
    rules = [
        Rule("filesystem", "read", str(place / "from")),  # type: ignore[arg-type] # words
        Rule("filesystem", "read", str(place / "to")),  # type: ignore[arg-type] # words
        Rule("filesystem", "create", str(place / "to")),  # type: ignore[arg-type] # words
    ]

    def check() -> object:
        with process_guard_context("m", "module", rules):
            try:
                return work()
            except PermissionError as error:
                return str(error).partition("operation=")[2].partition(";")[0]

    return confined(check)


@pytest.mark.parametrize("copy", ["copy", "copy2"])
def test_a_new_file_gets_the_mode_of_its_source(place: Path, copy: str) -> None:
    source, target = place / "from/deep/file", place / "to/new"
    assert guarded(place, lambda: str(getattr(shutil, copy)(source, target))) == str(target)
    found = target.stat()
    assert (found.st_mode & 0o777, found.st_mtime == 5) == (0o640, copy == "copy2")


def test_a_tree_is_copied_whole(place: Path) -> None:
    copied = guarded(place, lambda: str(shutil.copytree(place / "from", place / "to/tree")))
    assert copied == str(place / "to/tree")
    assert (place / "to/tree/deep/file").read_text() == "x"


def test_nothing_else_is_changed(place: Path) -> None:
    source, old, new = place / "from/deep/file", place / "to/old", place / "to/new"
    assert guarded(place, lambda: shutil.copy(source, old)) == "modify"

    def after() -> object:
        shutil.copy(source, new)
        new.chmod(0o777)
        return None

    def beside() -> object:
        class Reader(os.PathLike[str]):
            def __fspath__(self) -> str:
                old.chmod(0o777)
                return str(source)

        return shutil.copy(Reader(), new)

    assert guarded(place, after) == "modify"
    assert guarded(place, beside) == "modify"
