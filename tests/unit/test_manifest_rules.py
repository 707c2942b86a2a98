from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

from democrai_osguard import Rule, load_manifest
from democrai_osguard.access import Operation, ResourceType

if TYPE_CHECKING:
    from pathlib import Path

Document = dict[str, object]


def item(resource_type: str, operation: str, target: str) -> Document:
    return {"resource_type": resource_type, "operation": operation, "target": target}


def read(target: str) -> Document:
    return item("filesystem", "read", target)


def targets(document: Document, kind: str = "module", **more: str) -> list[str]:
    return [rule.target for rule in load_manifest(document, kind, **more).access]


def test_an_empty_manifest_declares_nothing() -> None:
    manifest = load_manifest({})
    assert (manifest.access, manifest.allowed_imports, manifest.warnings) == ((), (), ())
    assert (manifest.kind, manifest.phase, manifest.name) == ("module", None, None)


def test_rules_come_out_in_normal_form() -> None:
    document: Document = {
        "name": "reports",
        "access": [
            item("network", "send", "HTTPS://Example.com:443/v1/../v2"),
            item("filesystem", "modify", "//srv//none/./x/"),
            item("system_dependency", "execute", "FFmpeg"),
        ],
        "allowed_imports": ["ctypes"],
    }
    manifest = load_manifest(document)
    assert manifest.name == "reports"
    assert manifest.access == (
        Rule(ResourceType.NETWORK, Operation.SEND, "https://example.com/v2"),
        Rule(ResourceType.FILESYSTEM, Operation.MODIFY, "/srv/none/x"),
        Rule(ResourceType.SYSTEM_DEPENDENCY, Operation.EXECUTE, "FFmpeg"),
    )
    assert manifest.allowed_imports == ("ctypes",)
    assert manifest.warnings == ()


def test_two_spellings_of_one_rule_are_one_rule() -> None:
    assert targets({"access": [read("/srv/none"), read("/srv//none/")]}) == ["/srv/none"]


def test_a_relative_target_is_relative_to_the_manifests_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, elsewhere = tmp_path / "app", tmp_path / "elsewhere"
    folder.mkdir()
    elsewhere.mkdir()
    (folder / "manifest.json").write_text(json.dumps({"access": [read("models"), read(".")]}))
    monkeypatch.chdir(elsewhere)
    here = os.path.realpath(folder)
    manifest = load_manifest(folder / "manifest.json")
    assert [rule.target for rule in manifest.access] == [f"{here}/models", here]
    monkeypatch.chdir(tmp_path)
    assert load_manifest("app/manifest.json") == manifest


def test_a_base_that_is_given_comes_before_the_manifests_folder(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text(json.dumps({"access": [read("models")]}))
    manifest = load_manifest(tmp_path / "manifest.json", base="/srv/none")
    assert [rule.target for rule in manifest.access] == ["/srv/none/models"]


def test_a_link_in_a_manifest_is_resolved(tmp_path: Path) -> None:
    here = os.path.realpath(tmp_path)
    os.symlink("/srv/none/elsewhere", f"{here}/link")
    assert targets({"access": [read("link/x")]}, base=here) == ["/srv/none/elsewhere/x"]


@pytest.mark.parametrize("root", ["/", "//", "/home", "/home/", "/home/somebody", "/root", "~"])
def test_a_broad_root_is_accepted_with_a_warning(root: str) -> None:
    manifest = load_manifest({"access": [read("/srv/none"), read(root)]})
    assert len(manifest.access) == 2
    (warning,) = manifest.warnings
    assert warning.startswith("access[1].target:")


@pytest.mark.parametrize("root", ["/srv", "/home/somebody/work", "/homes", "~/none"])
def test_a_narrower_root_is_accepted_without_a_warning(root: str) -> None:
    assert load_manifest({"access": [read(root)]}).warnings == ()


@pytest.mark.parametrize("name", ["*.txt", "notes/?", "$HOME/notes", "${HOME}/notes"])
def test_a_pattern_or_a_variable_is_a_name_and_a_warning_says_so(name: str) -> None:
    manifest = load_manifest({"access": [read(f"/srv/none/{name}")]})
    assert [rule.target for rule in manifest.access] == [f"/srv/none/{name}"]
    (warning,) = manifest.warnings
    assert warning == (
        f"access[0].target: /srv/none/{name} is taken as it stands:"
        " paths have no patterns and no variables"
    )


@pytest.mark.parametrize("name", ["a$", "cost 5$", "[id].js", "a&b", "{x}"])
def test_a_name_that_nobody_takes_for_a_pattern_has_no_warning(name: str) -> None:
    assert load_manifest({"access": [read(f"/srv/none/{name}")]}).warnings == ()


def test_a_warning_in_a_phase_names_the_phase() -> None:
    manifest = load_manifest({"runtime": {"access": [read("/")]}}, "engine")
    (warning,) = manifest.warnings
    assert warning.startswith("runtime.access[0].target:")


@pytest.mark.parametrize("kind", ["engine", "extractor"])
def test_each_phase_has_its_own_rules(kind: str) -> None:
    document: Document = {
        "runtime": {"access": [read("/srv/none/r")], "allowed_imports": ["ctypes"]},
        "install": {"access": [read("/srv/none/i")], "allowed_imports": ["cffi"]},
    }
    assert targets(document, kind) == ["/srv/none/r"]
    assert targets(document, kind, phase="runtime") == ["/srv/none/r"]
    assert targets(document, kind, phase="install") == ["/srv/none/i"]
    assert load_manifest(document, kind).allowed_imports == ("ctypes",)
    assert load_manifest(document, kind, "install").allowed_imports == ("cffi",)
    assert load_manifest(document, kind).phase == "runtime"


def test_a_missing_phase_declares_nothing() -> None:
    document: Document = {"runtime": {"access": [read("/srv/none")]}}
    assert targets(document, "engine", phase="install") == []


def test_a_broad_root_of_another_phase_is_no_warning_here() -> None:
    document: Document = {"install": {"access": [read("/")]}}
    assert load_manifest(document, "engine", "runtime").warnings == ()


def test_an_engine_names_its_config_urls() -> None:
    manifest = load_manifest({"runtime": {"allowed_config_urls": ["base_url"]}}, "engine")
    assert manifest.allowed_config_urls == ("base_url",)


def test_an_import_that_nobody_guards_is_a_warning() -> None:
    manifest = load_manifest({"allowed_imports": ["cffi", "numpy"]})
    assert manifest.allowed_imports == ("cffi", "numpy")
    (warning,) = manifest.warnings
    assert warning.startswith("allowed_imports[1]:")


@pytest.mark.parametrize("root", ["ctypes", "_ctypes", "cffi", "_cffi_backend"])
def test_each_guarded_import_may_be_named(root: str) -> None:
    assert load_manifest({"allowed_imports": [root, root]}).allowed_imports == (root,)


def test_describing_keys_are_no_policy() -> None:
    document: Document = {"$schema": "x", "name": "n", "version": "1", "description": "d"}
    assert load_manifest(document).access == ()


def test_a_silent_asset_is_told_from_one_that_declares_nothing_at_all() -> None:
    assert load_manifest({}, "tool").declared is None
    assert load_manifest({"access": []}, "tool").declared == ()
    assert load_manifest({"runtime": {"access": []}}, "engine").declared == ()
    assert load_manifest({"install": {"access": []}}, "engine").declared is None
