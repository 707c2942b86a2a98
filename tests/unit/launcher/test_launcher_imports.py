"""What a launch costs before the command runs, counted in modules."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import democrai_osguard_launcher

PACKAGES = str(Path(democrai_osguard_launcher.__file__).parent.parent)
HEAVY = {
    "argparse", "asyncio", "collections", "ctypes", "dataclasses", "democrai_osguard", "enum",
    "functools", "json", "logging", "pathlib", "re", "struct", "subprocess", "typing",
}  # fmt: skip
NEVER_LOADS = {
    "democrai_osguard_launcher.main": HEAVY | {"democrai_osguard_launcher.other_words"},
    "democrai_osguard_launcher.confinement": HEAVY,
    "democrai_osguard_launcher.supervision": HEAVY - {"struct"},
    "democrai_osguard_launcher.plan": HEAVY | {"_ctypes"},
}
MOST_MODULES = 24


def loaded_by(module: str) -> set[str]:
    script = f"import os, sys; sys.path.append({PACKAGES!r}); before = set(sys.modules)\n"
    script += f"import {module}; print(*(set(sys.modules) - before))"
    python = [sys.executable, "-I", "-S", "-c", script]
    return set(subprocess.run(python, capture_output=True, text=True, check=True).stdout.split())


@pytest.mark.parametrize("module", NEVER_LOADS)
def test_importing_it_stays_small(module: str) -> None:
    assert NEVER_LOADS[module].isdisjoint(loaded_by(module))


def test_a_launch_loads_few_modules() -> None:
    loaded = loaded_by("democrai_osguard_launcher.main, democrai_osguard_launcher.confinement")
    assert len(loaded) <= MOST_MODULES, sorted(loaded)
