"""The documents stay true: what they name exists, what they show is what is printed."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from typing import TYPE_CHECKING

import pytest

from democrai_osguard.manifest_schema import manifest_schema

if TYPE_CHECKING:
    from pathlib import Path

LINK = re.compile(r"\]\((?!https?:)([^)#]+)\)")
PLACE = re.compile(
    r"`((?:democrai_osguard|launcher|helper|scripts|docs|tests|benchmarks)/[^`*…]*)`"
)


def _documents(repo: Path) -> list[Path]:
    tracked = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"],
        cwd=repo, check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    return [repo / name for name in tracked.split()]


@pytest.mark.needs("git")
def test_every_link_leads_somewhere(repo: Path) -> None:
    for document in _documents(repo):
        for target in LINK.findall(document.read_text(encoding="utf-8")):
            assert (document.parent / target).exists(), f"{document.name} links to {target}"


@pytest.mark.needs("git")
def test_every_place_that_is_named_exists(repo: Path) -> None:
    for document in _documents(repo):
        for place in PLACE.findall(document.read_text(encoding="utf-8")):
            assert (repo / place).exists(), f"{document.name} names {place}"


def test_the_shipped_schema_is_the_one_that_the_code_makes(repo: Path) -> None:
    shipped = (repo / "democrai_osguard/manifest.schema.json").read_text(encoding="utf-8")
    assert shipped == json.dumps(manifest_schema(), indent=2) + "\n"


def test_each_direct_dependency_has_its_line_and_its_pin(repo: Path) -> None:
    project = tomllib.loads((repo / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [*project["dependencies"]]
    for extra in project["optional-dependencies"].values():
        wanted += extra
    page = (repo / "docs/dependencies.md").read_text(encoding="utf-8")
    pins = (repo / "constraints.txt").read_text(encoding="utf-8").lower()
    for requirement in wanted:
        name = re.split(r"[<>=~! \[]", requirement)[0]
        if name == project["name"]:
            continue  # its own extras
        line = re.search(
            rf"^\| (?:[\w, -]+, )?{re.escape(name)}(?:, [\w, -]+)? \|", page, re.MULTILINE
        )
        assert line, f"{name} has no line in docs/dependencies.md"
        assert re.search(rf"^{re.escape(name.lower())}==", pins, re.MULTILINE), (
            f"{name} is not pinned"
        )


def test_the_changelog_keeps_its_form(repo: Path) -> None:
    text = (repo / "CHANGELOG.md").read_text(encoding="utf-8")
    headings = re.findall(r"^##+ (.*)$", text, re.MULTILINE)
    kinds = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
    version = re.compile(r"\[Unreleased\]|\[\d+\.\d+\.\d+\] - \d{4}-\d\d-\d\d")
    assert headings[0] == "[Unreleased]"
    assert all(heading in kinds or version.fullmatch(heading) for heading in headings)
    project = tomllib.loads((repo / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    versions = [heading for heading in headings if heading not in kinds]
    assert versions[1].startswith(f"[{project['version']}] - "), "the version has no heading"


def test_the_readme_starts_with_the_two_commands_and_ci_runs_the_second(repo: Path) -> None:
    readme = (repo / "README.md").read_text(encoding="utf-8")
    commands = re.findall(r"^\$ (make [a-z]+)", readme, re.MULTILINE)
    assert commands[:2] == ["make demo", "make test"]
    assert "make test" in (repo / ".ci/run").read_text(encoding="utf-8").splitlines()


def test_the_readme_compares_with_the_figures_of_the_report(repo: Path) -> None:
    report = (repo / "docs/escapes.md").read_text(encoding="utf-8")
    readme = (repo / "README.md").read_text(encoding="utf-8")
    (row,) = re.findall(r"^\| \*\*stopped, or kept to its own\*\* .*$", report, re.MULTILINE)
    figures = re.findall(r"\d+ of \d+", row)
    shown = re.search(r"^\| ways out that were stopped (.*)$", readme, re.MULTILINE)
    assert shown is not None
    assert re.findall(r"\d+ of \d+", shown[1]) == figures, f"write {figures} into README.md"


def test_the_readme_python_examples_run(repo: Path) -> None:
    readme = (repo / "README.md").read_text(encoding="utf-8")
    guarded, example = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    done = subprocess.run(
        [sys.executable, "-c", example], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "no rule of module:notes covers filesystem read" in done.stdout
    refused = subprocess.run(
        [sys.executable, "-c", guarded], capture_output=True, text=True, check=False
    )
    assert "sandbox_filesystem_denied:notes:/etc/shadow" in refused.stderr


@pytest.mark.parametrize(
    "target", ["demo", "test", "lint", "bench", "wheel", "test-kernel", "test-root"]
)
def test_the_makefile_has_one_command_each(repo: Path, target: str) -> None:
    makefile = (repo / "Makefile").read_text(encoding="utf-8")
    assert re.search(rf"^{target}:.*## ", makefile, re.MULTILINE)
