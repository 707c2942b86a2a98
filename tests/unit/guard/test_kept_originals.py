"""Originals that somebody kept from before: where they are found, and what they may do."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest
from guard.confined import confined

from democrai_osguard.guard import install, process_guard_context

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_SETS = ("supports_dir_fd", "supports_fd", "supports_follow_symlinks", "supports_effective_ids")
# In a dict, where no replacement finds them.
EARLY: dict[str, Any] = {name: getattr(os, name) for name in vars(os) if callable(vars(os)[name])}
ACTS: dict[str, Callable[[int], object]] = {
    "remove": lambda fd: EARLY["remove"]("file", dir_fd=fd),
    "rmdir": lambda fd: EARLY["rmdir"]("folder", dir_fd=fd),
    "mkdir": lambda fd: EARLY["mkdir"]("new", dir_fd=fd),
    "chmod": lambda fd: EARLY["chmod"]("file", 0o600, dir_fd=fd),
    "chown": lambda fd: EARLY["chown"]("file", -1, -1, dir_fd=fd),
    "utime": lambda fd: EARLY["utime"]("file", dir_fd=fd),
    "symlink": lambda fd: EARLY["symlink"]("file", "new", dir_fd=fd),
    "rename from": lambda fd: EARLY["rename"]("file", "new", src_dir_fd=fd),
    "rename to": lambda fd: EARLY["rename"]("file", "new", dst_dir_fd=fd),
    "link from": lambda fd: EARLY["link"]("file", "new", src_dir_fd=fd),
    "link to": lambda fd: EARLY["link"]("file", "new", dst_dir_fd=fd),
}


@pytest.mark.parametrize("name", _SETS)
def test_the_sets_of_os_hand_out_no_original(name: str) -> None:
    def check() -> object:
        before = {each.__name__ for each in getattr(os, name)}
        install()
        after = getattr(os, name)
        kept = [each.__name__ for each in after if not hasattr(each, "democrai_osguard")]
        return [kept, before == {each.__name__ for each in after}]

    assert confined(check) == [[], True]


@pytest.mark.parametrize("way", ACTS)
def test_an_original_is_judged_where_its_descriptor_leads(tmp_path: Path, way: str) -> None:
    for folder in ("own", "closed"):
        (tmp_path / folder / "folder").mkdir(parents=True)
        (tmp_path / folder / "file").touch()

    def check() -> object:
        os.chdir(tmp_path / "own")
        fd = os.open(tmp_path / "closed", os.O_RDONLY)
        paths = [tmp_path / "own"]
        with process_guard_context("m", "module", allowed_paths=paths, include_runtime_paths=False):
            try:
                ACTS[way](fd)
            except PermissionError as error:
                return getattr(error, "code", str(error))
        return "done"

    assert confined(check) == "sandbox_filesystem_fd_denied"
    assert sorted(os.listdir(tmp_path / "closed")) == ["file", "folder"]
