"""The helper imports the standard library and itself; the protocol even less."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import democrai_osguard_helper

HELPER = Path(democrai_osguard_helper.__file__).parent.parent
MODULES = sorted(path.stem for path in (HELPER / "democrai_osguard_helper").glob("*.py"))


def _loaded(module: str) -> set[str]:
    script = (
        f"import sys; sys.path.insert(0, {str(HELPER)!r}); before = set(sys.modules)\n"
        f"import {module}; print(*(set(sys.modules) - before))"
    )
    python = [sys.executable, "-I", "-S", "-c", script]
    return set(subprocess.run(python, capture_output=True, text=True, check=True).stdout.split())


def test_the_daemon_needs_no_package_but_its_own() -> None:
    loaded = {name.split(".")[0] for name in _loaded("democrai_osguard_helper.main")}
    assert loaded <= sys.stdlib_module_names | {"democrai_osguard_helper"}


@pytest.mark.parametrize("module", ["protocol", "client"])
def test_what_the_guard_imports_stays_small(module: str) -> None:
    loaded = _loaded(f"democrai_osguard_helper.{module}")
    assert loaded.isdisjoint({"ctypes", "subprocess", "argparse", "threading"})


def test_only_one_module_opens_the_door_to_the_kernel() -> None:
    users = {
        name
        for name in MODULES
        if "ctypes" in (HELPER / "democrai_osguard_helper" / f"{name}.py").read_text()
    }
    assert users == {"kernel"}


@pytest.mark.parametrize("word", ["shell=True", "pickle", "getaddrinfo", "gethostby", "eval("])
def test_root_code_never_says(word: str) -> None:
    for name in MODULES:
        assert word not in (HELPER / "democrai_osguard_helper" / f"{name}.py").read_text(), name
