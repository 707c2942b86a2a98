"""Who may import whom, checked on the built wheel."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from democrai_osguard.targets.network import DEFAULT_PORTS as GUARD_PORTS
from democrai_osguard_launcher.endpoints import DEFAULT_PORTS as LAUNCHER_PORTS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# Rooms of democrai_osguard from the ground up: a room imports from its own floor and below.
FLOORS = {
    "errors": 0,
    "access": 1,
    "directories": 1,
    "settings": 1,
    "targets": 2,
    "policy": 3,
    "manifest_shape": 3,
    "manifest": 4,
    "manifest_schema": 4,
    "permissions": 4,
    "approvals": 5,
    "audit": 5,
    "enforcement": 5,
    "learning": 5,
    "refusals": 5,
    "guard": 6,
    "runtime": 7,
    "sdk": 8,
    "ui": 9,
    "cli": 10,
}
GUARD = "democrai_osguard"
HELPER = "democrai_osguard_helper"
LAUNCHER = "democrai_osguard_launcher"
# What the guard may know of the small programs: pure modules, and nothing that calls the kernel.
PURE = {f"{LAUNCHER}.plan", f"{HELPER}.protocol", f"{HELPER}.client"}

# Importing these must stay cheap: modules are counted, not milliseconds.
NEVER_LOADS = {
    f"{LAUNCHER}.main": {GUARD, HELPER, "dataclasses", "typing", "argparse", "logging",
                         "subprocess", "asyncio", "json", "click"},
    f"{LAUNCHER}.plan": {GUARD, HELPER, "ctypes"},
    GUARD: {HELPER, "click", "idna", "wcmatch", "ctypes", "asyncio", "subprocess", "urllib"},
}  # fmt: skip


def _imports(path: Path, package: str) -> Iterator[str]:
    """Yield the full names that a file imports, also inside functions."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parent = package.split(".")[: len(package.split(".")) - node.level + 1]
            base = node.module or "" if not node.level else ".".join([*parent, node.module or ""])
            yield from (f"{base.rstrip('.')}.{alias.name}" for alias in node.names)


def _modules(wheel: Path, package: str) -> Iterator[tuple[str, Path]]:
    for path in sorted((wheel / package).rglob("*.py")):
        parts = list(path.relative_to(wheel).with_suffix("").parts)
        yield ".".join(parts), path


def _room(name: str) -> str:
    parts = name.split(".")
    return parts[1] if len(parts) > 1 else ""


def _package_of(module: str) -> str:
    return module.rpartition(".")[0]


def test_the_wheel_has_exactly_three_packages(wheel: Path) -> None:
    packages = {
        path.name for path in wheel.iterdir() if not path.name.endswith((".data", ".dist-info"))
    }
    assert packages == {GUARD, HELPER, LAUNCHER}


def test_the_wheel_ships_types_and_the_schema(wheel: Path) -> None:
    for package in (GUARD, HELPER, LAUNCHER):
        assert (wheel / package / "py.typed").is_file()
    schema = json.loads((wheel / GUARD / "manifest.schema.json").read_text(encoding="utf-8"))
    assert schema["title"] == "democrai-osguard manifest"


@pytest.mark.parametrize("package", [HELPER, LAUNCHER])
def test_a_small_program_imports_the_standard_library_and_itself(wheel: Path, package: str) -> None:
    for module, path in _modules(wheel, package):
        for name in _imports(path, _package_of(module)):
            root = name.split(".")[0]
            assert root in {*sys.stdlib_module_names, package}, f"{module} imports {name}"


def test_each_room_imports_only_from_its_own_floor_and_below(wheel: Path) -> None:
    for module, path in _modules(wheel, GUARD):
        room = _room(module)
        if room == "__init__":
            continue
        for name in _imports(path, _package_of(module)):
            if name.split(".")[0] == GUARD and name != GUARD:
                asked = _room(name)
                below = FLOORS[asked] <= FLOORS[room] if asked in FLOORS else False
                assert below, f"{module} imports {name}"


def test_the_guard_knows_only_pure_modules_of_the_small_programs(wheel: Path) -> None:
    for module, path in _modules(wheel, GUARD):
        for name in _imports(path, _package_of(module)):
            if name.split(".")[0] in {HELPER, LAUNCHER}:
                allowed = any(name == pure or name.startswith(f"{pure}.") for pure in PURE)
                assert allowed, f"{module} imports {name}"


@pytest.mark.parametrize("module", NEVER_LOADS)
def test_importing_it_stays_small(wheel: Path, module: str) -> None:
    script = (
        f"import sys; sys.path.insert(0, {str(wheel)!r}); before = set(sys.modules)\n"
        f"import {module}; print(*(set(sys.modules) - before))"
    )
    python = [sys.executable, "-I", "-c", script]
    loaded = subprocess.run(python, capture_output=True, text=True, check=True).stdout.split()
    assert module in loaded
    assert NEVER_LOADS[module].isdisjoint(loaded)


def test_guard_and_launcher_know_the_same_ports() -> None:
    assert LAUNCHER_PORTS == GUARD_PORTS
