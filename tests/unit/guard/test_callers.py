"""A framework opens guards when guarded code calls it; a library only calls what it is handed."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

FRAMEWORK = """
from democrai_osguard import runtime
from democrai_osguard.guard import process_guard_context

class Engine(process_guard_context):
    def __init__(self, folder):
        super().__init__("engine", "engine", allowed_paths=[folder])

def made(folder):
    return process_guard_context("engine", "engine", allowed_paths=[folder])

def surface(folder):
    return runtime.engine_context("engine", {}, folder=folder)
"""
# It speaks of no guard itself.
RUNNING = """
import contextlib
from lab_frame import guards

def read(path):
    with open(path) as file:
        return file.read()

def in_a_made_one(folder, path):
    with guards.made(folder):
        return read(path)

def in_one_of_its_class(folder, path):
    with guards.Engine(folder):
        return read(path)

def in_a_surface(folder, path):
    with contextlib.ExitStack() as stack:
        stack.enter_context(guards.surface(folder))
        return read(path)

async def in_a_task(folder, path):
    with guards.made(folder):
        return read(path)
"""
HOST = """
import asyncio, sys
from lab_frame import running
from democrai_osguard import process_guard_context
folder, path, way = sys.argv[1:]
space = {"running": running, "folder": folder, "path": path, "asyncio": asyncio}
with process_guard_context("m", "module"):
    exec(f"print({way})", space)
"""
WAYS = {
    "made": "running.in_a_made_one(folder, path)",
    "class": "running.in_one_of_its_class(folder, path)",
    "surface": "running.in_a_surface(folder, path)",
    "task": "asyncio.run(running.in_a_task(folder, path))",
}


def _run(tmp_path: Path, way: str) -> str:
    package = tmp_path / "own-packages" / "lab_frame"
    package.mkdir(parents=True)
    for name, text in (("__init__", ""), ("guards", FRAMEWORK), ("running", RUNNING)):
        (package / f"{name}.py").write_text(text)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").write_text("read")
    path = os.pathsep.join((str(package.parent), *filter(None, sys.path)))
    env = {**os.environ, "PYTHONPATH": path, "DEMOCRAI_TEMP_DIR": str(tmp_path / "temp")}
    words = [str(tmp_path / "folder"), str(tmp_path / "folder" / "file"), way]
    done = subprocess.run(
        [sys.executable, "-c", HOST, *words],
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    return done.stdout or done.stderr


@pytest.mark.parametrize("way", WAYS)
def test_a_framework_among_the_packages_opens_guards_for_guarded_code(
    tmp_path: Path, way: str
) -> None:
    assert _run(tmp_path, WAYS[way]) == "read\n"


def test_without_the_framework_the_same_act_is_refused(tmp_path: Path) -> None:
    assert "sandbox_filesystem_denied" in _run(tmp_path, "running.read(path)")


def test_what_a_framework_makes_is_not_guarded_code_s_to_enter(tmp_path: Path) -> None:
    way = "running.guards.made(folder).__enter__()"
    assert "sandbox_guard_denied" in _run(tmp_path, way)
