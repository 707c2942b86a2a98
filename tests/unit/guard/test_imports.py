"""Imports under a guard: what they leave behind, and by which names they are asked for."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from typing import TYPE_CHECKING

import pytest
from guard.confined import confined

from democrai_osguard.guard import process_guard_context

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def _statement(name: str) -> object:
    return __import__(name)


WAYS: dict[str, Callable[[str], object]] = {
    "statement": _statement,
    "import_module": importlib.import_module,
    "find_spec": importlib.util.find_spec,
}


@pytest.mark.parametrize("loaded", [False, True])
@pytest.mark.parametrize("owner", ["builtins", "importlib", "_frozen_importlib"])
def test_a_sensitive_root_is_refused_by_every_name_of_import(owner: str, loaded: bool) -> None:
    def check() -> object:
        if loaded:
            importlib.import_module("ctypes")
        with process_guard_context("m", "module"):
            try:
                sys.modules[owner].__import__("ctypes")
            except PermissionError as error:
                return str(error)
        return "imported"

    assert confined(check) == "sandbox_module_denied:ctypes"


@pytest.fixture
def package(tmp_path: Path) -> str:
    """Return the name of a package with a folder inside, which is on the search path."""
    (tmp_path / "outer_package/inner").mkdir(parents=True)
    for name in ("outer_package", "outer_package/inner"):
        (tmp_path / name / "__init__.py").touch()
    return "outer_package"


def _attempt(way: str, name: str) -> str:
    try:
        found = WAYS[way](name)
    except ImportError:
        return "not found"
    return "not found" if way == "find_spec" and found is None else "found"


@pytest.mark.parametrize("way", WAYS)
def test_what_a_guard_hid_from_an_import_is_found_without_it(
    tmp_path: Path, package: str, way: str
) -> None:
    def check() -> object:
        sys.path.insert(0, str(tmp_path))
        importlib.import_module(package)
        with process_guard_context("m", "mcp", include_runtime_paths=False):
            inside = _attempt(way, f"{package}.inner")
        return [inside, _attempt(way, f"{package}.inner")]

    assert confined(check) == ["not found", "found"]


def test_what_may_be_read_is_found_and_remembered_under_a_guard(
    tmp_path: Path, package: str
) -> None:
    def check() -> object:
        sys.path.insert(0, str(tmp_path))
        with process_guard_context("m", "mcp", allowed_paths=[tmp_path]):
            inside = _attempt("statement", f"{package}.inner")
            return [inside, sys.path_importer_cache.get(str(tmp_path / package)) is not None]

    assert confined(check) == ["found", True]


def test_without_a_guard_it_is_remembered_that_a_folder_is_missing(tmp_path: Path) -> None:
    def check() -> object:
        with process_guard_context("m", "mcp"):
            pass
        sys.path.insert(0, str(tmp_path / "missing"))
        _attempt("statement", "no_such_package")
        return sys.path_importer_cache.get(str(tmp_path / "missing"), "unknown")

    assert confined(check) is None
