"""Imports under a guard: what they leave behind, and by which names they are asked for."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import sysconfig
from typing import TYPE_CHECKING, Any

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


@pytest.mark.parametrize("name", [".", ".util"])
def test_a_name_relative_to_a_sensitive_root_is_refused(name: str) -> None:
    def check() -> object:
        importlib.import_module("ctypes.util")
        with process_guard_context("m", "module"):
            try:
                importlib.import_module(name, "ctypes")
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


@pytest.mark.parametrize("module", ["cryptography.fernet", "jwt"])
def test_native_code_is_refused_a_sensitive_module_by_its_name(module: str) -> None:
    def check() -> object:
        for name in [name for name in sys.modules if name.partition(".")[0] in _NATIVE]:
            del sys.modules[name]
        found = []
        for opened in ((), ("_cffi_backend",)):
            with process_guard_context("m", "module", allowed_imports=opened):
                try:
                    importlib.import_module(module)
                    found.append("imported")
                except PermissionError as error:
                    found.append(str(error))
        return found

    assert confined(check) == ["sandbox_module_denied:_cffi_backend", "imported"]


_NATIVE = ("cryptography", "jwt", "cffi", "_cffi_backend")

LIBRARY = """
def look(name):
    try:
        __import__(name)
    except ImportError as error:
        hint = getattr(error, "hint", "")
        return type(error).__name__, getattr(error, "code", ""), hint, str(error)
    return "imported", "", "", ""
"""


def _looked_for(name: str, *, library: bool, **options: Any) -> Any:  # noqa: ANN401 - of a guard
    """Return what comes of an import in a library, or in guarded code, that is not loaded yet."""
    file = f"{sysconfig.get_path('purelib')}/made_up.py" if library else "/srv/guarded.py"

    def check() -> object:
        space: dict[str, Any] = {}
        exec(compile(LIBRARY, file, "exec"), space)  # noqa: S102 - code with a file name of its own
        sys.modules.pop(name, None)
        with process_guard_context("m", "mcp", **options):
            try:
                return space["look"](name)
            except PermissionError as error:
                hint = getattr(error, "hint", "")
                return type(error).__name__, getattr(error, "code", ""), hint, str(error)

    return confined(check)


@pytest.mark.parametrize("name", ["wsgiref.util", "this"])
@pytest.mark.parametrize("library", [False, True])
def test_an_installed_module_that_may_not_be_read_is_refused_as_that(
    name: str, library: bool
) -> None:
    found = _looked_for(name, library=library, include_runtime_paths=False)
    kind, code, hint, text = found
    # A library that can do without a module must be able to see that it is not there.
    assert kind == ("ModuleHidden" if library else "FilesystemDenied")
    assert code == "sandbox_filesystem_denied"
    assert hint.startswith(f"Load '{name.partition('.')[0]}")
    place = f"{sysconfig.get_path('stdlib')}/{name.partition('.')[0]}"
    assert text.startswith(f"sandbox_filesystem_denied:m:{os.path.realpath(place)}")
    assert "operation=read" in text
    assert _looked_for(name, library=library)[0] == "imported"


def test_a_module_that_is_nowhere_is_not_found_as_ever() -> None:
    found = _looked_for("no_such_module", library=False, include_runtime_paths=False)
    assert found[0] == "ModuleNotFoundError"
    assert found[3] == "No module named 'no_such_module'"
