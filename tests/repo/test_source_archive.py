"""From the source archive to a wheel, to an installation, to a confined command."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

_BUILD = (sys.executable, "-m", "build", "--no-isolation")


def _run(*words: str | Path, **more: str) -> str:
    done = subprocess.run(
        words, capture_output=True, text=True, check=False, env={**os.environ, **more}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def unpacked(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the tree that the source archive holds."""
    made = tmp_path_factory.mktemp("archive")
    _run(*_BUILD, "--sdist", "--outdir", made, source)
    (archive,) = made.glob("*.tar.gz")
    with tarfile.open(archive) as file:
        file.extractall(made, filter="data")
    return made / archive.name.removesuffix(".tar.gz")


@pytest.fixture(scope="module")
def archive_wheel(unpacked: Path) -> Path:
    """Return the wheel that is built from it."""
    _run(*_BUILD, "--wheel", "--outdir", unpacked.parent, unpacked)
    (found,) = unpacked.parent.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def installed(archive_wheel: Path) -> Path:
    """Return the folder of programs of an environment that holds this wheel, and no other copy."""
    place = archive_wheel.parent / "environment"
    _run(sys.executable, "-m", "venv", "--without-pip", place)
    python = place / "bin/python"
    pip = (sys.executable, "-m", "pip", "--python", python, "install")
    _run(*pip, "--quiet", "--no-index", "--no-deps", "--disable-pip-version-check", archive_wheel)
    # Its dependencies are those of this environment: nothing is fetched. What is named in such
    # a file is only looked through, so an editable install over there does not count.
    names = {"base": str(place), "platbase": str(place)}
    own = sysconfig.get_path("purelib", "venv", names)
    with open(f"{own}/dependencies.pth", "w", encoding="utf-8") as file:
        file.write(sysconfig.get_path("purelib"))
    return place / "bin"


@pytest.mark.needs("git")
def test_the_archive_holds_every_file_of_the_tree(repo: Path, unpacked: Path) -> None:
    listed = _run("git", "-C", repo, "ls-files", "--cached", "--others", "--exclude-standard", "-z")
    names = [name for name in listed.split("\0") if name and (repo / name).exists()]
    assert len(names) > 500
    assert [name for name in names if not (unpacked / name).is_file()] == []
    scripts = [path for path in unpacked.glob("scripts/*") if os.access(path, os.X_OK)]
    assert "install" in {path.name for path in scripts}


def test_the_archive_s_wheel_is_the_tree_s_wheel(archive_wheel: Path, wheel: Path) -> None:
    with zipfile.ZipFile(archive_wheel) as file:
        names = {name for name in file.namelist() if not name.endswith("/")}
    made = {str(path.relative_to(wheel)) for path in wheel.rglob("*") if path.is_file()}
    # What was unpacked may have been run by another test, which leaves bytecode.
    assert names == {name for name in made if "__pycache__" not in name}


def test_its_programs_say_the_version(installed: Path, repo: Path) -> None:
    project = tomllib.loads((repo / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for program in ("democrai-launch", "democrai-osguard"):
        assert _run(installed / program, "--version").split()[-1] == project["version"]
    assert "--socket" in _run(installed / "democrai-osguard-helper", "--help")


def test_it_is_the_installed_copy_that_runs(installed: Path) -> None:
    for package in ("democrai_osguard", "democrai_osguard_helper", "democrai_osguard_launcher"):
        script = f"import {package}; print({package}.__file__)"
        found = _run(installed / "python", "-I", "-c", script)
        assert found.startswith(str(installed.parent))


@pytest.mark.needs("landlock", "seccomp")
def test_its_launcher_holds_a_command(installed: Path, tmp_path: Path) -> None:
    for name in ("open", "closed"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "note").write_text(name)
    launch = (installed / "democrai-launch", "--best-effort", f"--read={tmp_path}/open", "--")
    assert _run(*launch, "cat", tmp_path / "open/note") == "open"
    assert _run("cat", tmp_path / "closed/note") == "closed"  # the control
    refused = subprocess.run(
        [*launch, "cat", tmp_path / "closed/note"], capture_output=True, text=True, check=False
    )
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "Permission denied" in refused.stderr


@pytest.mark.needs("landlock", "seccomp")
def test_its_demo_runs(installed: Path, tmp_path: Path) -> None:
    path = os.pathsep.join((str(installed), os.environ["PATH"]))
    shown = _run(
        installed / "democrai-osguard", "demo", PATH=path, DEMOCRAI_STATE_DIR=str(tmp_path)
    )
    assert "refused" in shown
