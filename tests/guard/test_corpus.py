"""Every technique of the corpus works without a guard, and is stopped with one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from guard.laboratory import TECHNIQUES
from guard.technique import LAUNCHER, SILENT, Technique
from host_features import interpreter

if TYPE_CHECKING:
    from pathlib import Path

_SECONDS = 900
_LEAST = 80  # techniques that the issue asks for


def run_corpus(python: str, folder: Path, repo: Path) -> dict[tuple[str, bool], dict[str, Any]]:
    """Run the whole corpus with an interpreter; return each report by name and whether guarded."""
    packages = [path for path in sys.path if path.endswith("site-packages")]
    path = os.pathsep.join((str(repo), str(repo / "launcher"), str(repo / "helper"), *packages))
    env = {**os.environ, "PYTHONPATH": path}
    command = [python, str(repo / "tests" / "guard" / "laboratory.py"), str(folder)]
    done = subprocess.run(
        command, env=env, capture_output=True, text=True, timeout=_SECONDS, check=False
    )
    assert done.returncode == 0, done.stderr
    reports = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return {(report["name"], report["guarded"]): report for report in reports}


def failures(reports: dict[tuple[str, bool], dict[str, Any]]) -> list[str]:
    """Return one line for each technique that behaves as it should not."""
    found = []
    for technique in TECHNIQUES:
        control, guarded = reports[technique.name, False], reports[technique.name, True]
        if not control["won"]:
            found.append(f"{technique.name}: does not work at all: {control['stopped']}")
        if technique.refused_with == LAUNCHER:
            if not guarded["won"]:
                found.append(f"{technique.name}: is held now; take it out of SECURITY.md")
        elif guarded["won"]:
            found.append(f"{technique.name}: gets through")
        elif not _right(technique, guarded["stopped"]):
            found.append(f"{technique.name}: stopped by something else: {guarded['stopped']}")
    return found


def _right(technique: Technique, stopped: list[str]) -> bool:
    code = technique.refused_with
    return code == SILENT or any(code in line for line in stopped)


def test_the_corpus_is_large_and_its_names_are_unique() -> None:
    names = [technique.name for technique in TECHNIQUES]
    assert len(names) == len(set(names))
    assert len(names) >= _LEAST


def test_every_technique_is_stopped(tmp_path: Path, repo: Path) -> None:
    assert failures(run_corpus(sys.executable, tmp_path, repo)) == []


@pytest.mark.parametrize(
    "version",
    [
        pytest.param("3.12", marks=pytest.mark.needs("python3.12")),
        pytest.param("3.13", marks=pytest.mark.needs("python3.13")),
    ],
)
def test_every_technique_is_stopped_on_other_interpreters(
    version: str, tmp_path: Path, repo: Path
) -> None:
    assert failures(run_corpus(interpreter(version), tmp_path, repo)) == []
