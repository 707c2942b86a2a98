"""Making folders below a root whose own folder is closed."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from guard.confined import confined

from democrai_osguard import Rule
from democrai_osguard.guard import process_guard_context

if TYPE_CHECKING:
    from collections.abc import Callable

WAYS: dict[str, Callable[[Path], object]] = {
    "makedirs": lambda path: os.makedirs(path, exist_ok=True),
    "makedirs of bytes": lambda path: os.makedirs(os.fsencode(path), 0o700, True),
    "makedirs with a slash": lambda path: os.makedirs(f"{path}/", exist_ok=True),
    "makedirs with a dot": lambda path: os.makedirs(f"{path}/.", exist_ok=True),
    "mkdir": lambda path: Path(path).mkdir(parents=True, exist_ok=True),
    "copytree": lambda path: shutil.copytree(path.parent / "source", path, dirs_exist_ok=True),
}


def _outcome(tmp_path: Path, operations: str, act: Callable[[Path], object], path: str) -> object:
    """Return what comes of an act under a guard with these operations on `root` alone."""
    for name in ("root", "source"):
        (tmp_path / name).mkdir(exist_ok=True)
    rules = [Rule.of("filesystem", word, str(tmp_path / "root")) for word in operations.split()]
    rules.append(Rule.of("filesystem", "read", str(tmp_path / "source")))

    def check() -> object:
        with process_guard_context("m", "module", rules, include_runtime_paths=False):
            try:
                act(tmp_path / path)
            except OSError as error:
                return getattr(error, "target", type(error).__name__)
        return "done"

    return confined(check)


@pytest.mark.parametrize("path", ["root", "root/new", "root/new/one"])
@pytest.mark.parametrize("way", WAYS)
def test_a_folder_is_made_at_or_below_a_root(tmp_path: Path, way: str, path: str) -> None:
    if way == "copytree":
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).parent.joinpath("source").mkdir(exist_ok=True)
    assert _outcome(tmp_path, "read create modify", WAYS[way], path) == "done"
    assert (tmp_path / path).is_dir()


@pytest.mark.parametrize("way", sorted(WAYS.keys() - {"copytree"}))
def test_a_folder_elsewhere_is_refused_by_its_own_name(tmp_path: Path, way: str) -> None:
    refused = _outcome(tmp_path, "read create modify", WAYS[way], "other/new")
    assert refused == str(tmp_path / "other/new")
    assert not (tmp_path / "other").exists()


def test_a_root_that_may_only_be_read_is_there_already(tmp_path: Path) -> None:
    assert _outcome(tmp_path, "read", WAYS["makedirs"], "root") == "done"
    assert _outcome(tmp_path, "read", WAYS["makedirs"], "root/new") == str(tmp_path / "root/new")


def test_a_folder_that_must_be_new_is_not_made_twice(tmp_path: Path) -> None:
    def act(path: Path) -> None:
        os.makedirs(path)

    assert _outcome(tmp_path, "read create", act, "root") == "FileExistsError"
    assert _outcome(tmp_path, "read create", act, "root/new") == "done"
