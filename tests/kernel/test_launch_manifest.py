"""`--manifest`: which of its rules count, and what is said where it is wrong."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from kernel.conftest import Launch

pytestmark = pytest.mark.needs("landlock", "seccomp")


def write_manifest(folder: Path, operation: str) -> Path:
    item = {"resource_type": "filesystem", "operation": operation, "target": "data"}
    (folder / "data").write_text("seen")
    (folder / "manifest.json").write_text(json.dumps({"access": [item], "allowed_imports": []}))
    return folder / "manifest.json"


def test_a_manifest_takes_the_place_of_the_variable(launch: Launch, tmp_path: Path) -> None:
    manifest = write_manifest(tmp_path, "read")
    result = launch("--manifest", manifest, "--", "cat", tmp_path / "data", access="not even JSON")
    assert (result.stdout, result.stderr) == ("seen", "")


def test_a_manifest_that_does_not_parse_is_one_line_and_64(launch: Launch, tmp_path: Path) -> None:
    manifest = write_manifest(tmp_path, "write")
    result = launch("--manifest", manifest, "--", "cat", tmp_path / "data")
    assert (result.returncode, result.stdout) == (64, "")
    assert "access[0].operation: 'write' is not an operation" in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_manifest_that_is_missing_is_64(launch: Launch, tmp_path: Path) -> None:
    assert launch("--manifest", tmp_path / "none.json", "--", "true").returncode == 64


BOTH_PHASES = {
    phase: {"access": [{"resource_type": "filesystem", "operation": "read", "target": phase}]}
    for phase in ("runtime", "install")
}


@pytest.mark.parametrize("kind", ["engine", "extractor"])
@pytest.mark.parametrize("phase", [None, "runtime", "install"])
def test_the_phase_and_the_subjects_kind_decide_which_rules_count(
    launch: Launch, tmp_path: Path, kind: str, phase: str | None
) -> None:
    for each in BOTH_PHASES:
        (tmp_path / each).write_text(each)
    manifest = tmp_path / "manifest.json"
    manifest.write_text(json.dumps(BOTH_PHASES))
    options = ["--manifest", str(manifest), "--subject", f"{kind}:x"]
    options += ["--phase", phase] if phase else []
    result = launch(*options, "--", "cat", tmp_path / "runtime", tmp_path / "install")
    assert (result.returncode, result.stdout) == (1, phase or "runtime")


def test_a_manifest_of_phases_is_not_a_modules(launch: Launch, tmp_path: Path) -> None:
    manifest = tmp_path / "manifest.json"
    manifest.write_text(json.dumps(BOTH_PHASES))
    for kind in ("module", "tool", "task"):
        result = launch("--manifest", manifest, "--subject", f"{kind}:x", "--", "true")
        assert result.returncode == 64
        assert "unknown key" in result.stderr


@pytest.mark.parametrize("phase", [None, "runtime", "install"])
def test_without_a_subject_a_manifest_of_phases_is_seen_for_what_it_is(
    launch: Launch, tmp_path: Path, phase: str | None
) -> None:
    for each in BOTH_PHASES:
        (tmp_path / each).write_text(each)
    manifest = tmp_path / "manifest.json"
    manifest.write_text(json.dumps(BOTH_PHASES))
    options = ["--manifest", str(manifest), *(["--phase", phase] if phase else [])]
    result = launch(*options, "--", "cat", tmp_path / "runtime", tmp_path / "install")
    assert (result.returncode, result.stdout) == (1, phase or "runtime")


@pytest.mark.parametrize("subject", [None, "module:x", "task:x", "core:x"])
def test_a_flat_manifest_has_one_phase_for_each_kind_that_has_one(
    launch: Launch, tmp_path: Path, subject: str | None
) -> None:
    options = ["--manifest", str(write_manifest(tmp_path, "read"))]
    options += ["--subject", subject] if subject else []
    result = launch(*options, "--phase", "runtime", "--", "cat", tmp_path / "data")
    assert (result.returncode, result.stdout, result.stderr) == (0, "seen", "")
    refused = launch(*options, "--phase", "install", "--", "true")
    assert refused.returncode == 64
    assert "has no phase 'install'" in refused.stderr


def test_a_broad_root_of_a_manifest_is_warned_of_and_holds(launch: Launch, tmp_path: Path) -> None:
    (tmp_path / "data").write_text("seen")
    manifest = tmp_path / "manifest.json"
    item = {"resource_type": "filesystem", "operation": "read", "target": "/"}
    manifest.write_text(json.dumps({"access": [item]}))
    result = launch("--manifest", manifest, "--", "cat", tmp_path / "data")
    assert (result.returncode, result.stdout) == (0, "seen")
    assert result.stderr == (
        f"democrai-launch: --manifest {manifest}: warning: access[0].target: / is broad;"
        " name the folder that is really needed\n"
    )


def test_a_subject_without_manifests_is_told_so_in_our_words(
    launch: Launch, tmp_path: Path
) -> None:
    manifest = write_manifest(tmp_path, "read")
    result = launch("--manifest", manifest, "--subject", "mcp:x", "--", "true")
    assert (result.returncode, result.stdout) == (64, "")
    assert result.stderr == (
        "democrai-launch: --manifest: a subject of the kind mcp has none"
        " (module, task, engine, extractor, tool, agent, pipeline, core have)\n"
    )


def test_a_manifest_with_many_mistakes_is_one_line_and_64(launch: Launch, tmp_path: Path) -> None:
    """More than a pipe holds: its reader must not wait for ever."""
    item = {"resource_type": "filesystem", "operation": "write", "target": "/data"}
    (tmp_path / "manifest.json").write_text(json.dumps({"access": [item] * 3000}))
    result = launch("--manifest", tmp_path / "manifest.json", "--", "true")
    assert (result.returncode, result.stdout, result.stderr.count("\n")) == (64, "", 1)
