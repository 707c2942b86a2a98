from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from democrai_osguard import ManifestError, load_manifest

if TYPE_CHECKING:
    from pathlib import Path

Document = dict[str, object]
READ: Document = {"resource_type": "filesystem", "operation": "read", "target": "/srv/none"}


def problems(document: object, kind: str = "module", phase: str | None = None) -> tuple[str, ...]:
    with pytest.raises(ManifestError) as caught:
        load_manifest(document, kind, phase)  # type: ignore[arg-type] # wrong on purpose
    assert caught.value.code == "invalid_manifest"
    assert isinstance(caught.value, ValueError)
    assert str(caught.value) == "\n".join(caught.value.problems)
    return caught.value.problems


def rule(**changes: object) -> Document:
    return {"access": [READ, READ, READ | changes]}


@pytest.mark.parametrize(
    ("document", "place", "word"),
    [
        ([], "manifest", "object"),
        (None, "manifest", "object"),
        ({"acess": []}, "acess:", "unknown key"),
        ({"runtime": {}}, "runtime:", "unknown key"),
        ({"allowed_config_urls": []}, "allowed_config_urls:", "unknown key"),
        ({"name": 5}, "name:", "text"),
        ({"version": None}, "version:", "text"),
        ({"access": {}}, "access:", "list"),
        ({"access": None}, "access:", "list"),
        ({"access": "all"}, "access:", "list"),
        ({"access": [READ, "all"]}, "access[1]:", "object"),
        ({"access": [[]]}, "access[0]:", "object"),
        (rule(extra=1), "access[2].extra:", "unknown key"),
        (rule(**{"a: b\n": 1}), "access[2].'a: b\\n':", "unknown key"),
        ({"access": [READ | {"target": None}]}, "access[0].target:", "text"),
        (rule(operation=True), "access[2].operation:", "text"),
        (rule(operation=["read"]), "access[2].operation:", "text"),
        (rule(target=5), "access[2].target:", "text"),
        (rule(target=None), "access[2].target:", "text"),
        (rule(resource_type={}), "access[2].resource_type:", "text"),
        (rule(resource_type="url"), "access[2].resource_type:", "resource type"),
        (rule(resource_type="Filesystem"), "access[2].resource_type:", "resource type"),
        (rule(operation=""), "access[2].operation:", "operation"),
        (rule(operation="connect"), "access[2].operation:", "connect"),
        (rule(operation="READ"), "access[2].operation:", "READ"),
        (rule(target=""), "access[2].target:", "empty"),
        (rule(target="/a\0b"), "access[2].target:", "NUL"),
        (rule(target="models"), "access[2].target:", "relative"),
        (rule(target="/none/../x"), "access[2].target:", "'..'"),
        (rule(target="{nowhere}/x"), "access[2].target:", "token"),
        (rule(target="~no-such-user/x"), "access[2].target:", "user"),
        ({"allowed_imports": "ctypes"}, "allowed_imports:", "list"),
        ({"allowed_imports": ["cffi", 5]}, "allowed_imports[1]:", "text"),
        ({"allowed_imports": [""]}, "allowed_imports[0]:", "text"),
        ({"allowed_imports": ["a.b"]}, "allowed_imports[0]:", "a.b"),
        ({"allowed_imports": ["*"]}, "allowed_imports[0]:", "*"),
        ({"allowed_imports": ["ctypes\n"]}, "allowed_imports[0]:", "ctypes"),
        ({"allowed_imports": ["../x"]}, "allowed_imports[0]:", "../x"),
    ],
)
def test_an_error_names_its_place(document: object, place: str, word: str) -> None:
    (problem,) = problems(document)
    assert problem.startswith(place)
    assert word in problem


def test_an_operation_that_is_none_is_told_which_there_are() -> None:
    (problem,) = problems(rule(operation="write"))
    place, _, reason = problem.partition(": ")
    assert place == "access[2].operation"
    operations = "(read, create, modify, delete, execute)"
    assert reason == f"'write' is not an operation of filesystem {operations}"


def test_what_is_missing_is_named_with_its_place() -> None:
    assert problems({"access": [READ, {"operation": "read", "target": "/x"}, {}]}) == (
        "access[1].resource_type: missing",
        "access[2].resource_type: missing",
        "access[2].operation: missing",
        "access[2].target: missing",
    )


def test_every_problem_is_reported_at_once() -> None:
    document = {
        "oops": 1,
        "name": [],
        "access": [READ | {"operation": "write"}, READ | {"target": ""}, "x"],
        "allowed_imports": ["a b"],
    }
    places = [problem.partition(":")[0] for problem in problems(document)]
    at_the_top = ("oops", "name", "allowed_imports[0]")
    in_access = ("access[0].operation", "access[1].target", "access[2]")
    assert sorted(places) == sorted((*at_the_top, *in_access))


@pytest.mark.parametrize("phase", [None, "runtime", "install"])
def test_every_phase_is_checked_whichever_is_asked_for(phase: str | None) -> None:
    document = {
        "runtime": {"access": [READ | {"operation": "write"}]},
        "install": {"access": [READ | {"operation": "send"}], "more": 1},
    }
    found = problems(document, "engine", phase)
    assert [problem.partition(":")[0] for problem in found] == [
        "runtime.access[0].operation",
        "install.more",
        "install.access[0].operation",
    ]


@pytest.mark.parametrize(
    ("document", "place"),
    [
        ({"access": []}, "access"),
        ({"runtime": []}, "runtime"),
        ({"runtime": {"access": {}}}, "runtime.access"),
        ({"install": {"allowed_imports": [None]}}, "install.allowed_imports[0]"),
        ({"allowed_config_urls": ["x"]}, "allowed_config_urls"),
        ({"runtime": {"allowed_config_urls": ["x"]}}, "runtime.allowed_config_urls"),
    ],
)
def test_an_extractor_has_phases_and_no_config_urls(document: Document, place: str) -> None:
    (problem,) = problems(document, "extractor")
    assert problem.startswith(f"{place}:")


@pytest.mark.parametrize("kind", ["url", "mcp", "", "Module"])
def test_a_kind_without_manifest_is_an_error(kind: str) -> None:
    (problem,) = problems({}, kind)
    assert "has no manifest" in problem
    assert ("its rules come from its endpoint alone" in problem) is (kind == "mcp")


@pytest.mark.parametrize(
    ("kind", "phase"), [("module", "install"), ("engine", "setup"), ("extractor", "")]
)
def test_a_wrong_phase_is_an_error(kind: str, phase: str) -> None:
    (problem,) = problems({}, kind, phase)
    assert "phase" in problem


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ('{"access": [], "access": []}', "'access'"),
        ('{"access": [{"target": "/a", "target": "/"}]}', "'target'"),
        ('{"name": NaN}', "NaN"),
        ('{"name": Infinity}', "Infinity"),
        ("", "JSON"),
        ("{", "JSON"),
        ("{} {}", "JSON"),
        ("{'a': 1}", "JSON"),
        ("[" * 100_000, "JSON"),
        ('{"name": "\udcff"}', "JSON"),
    ],
    ids=[
        "twins",
        "inner twins",
        "nan",
        "infinity",
        "empty",
        "open",
        "two",
        "quotes",
        "deep",
        "raw",
    ],
)
def test_a_file_that_is_not_json_is_an_error(tmp_path: Path, text: str, word: str) -> None:
    path = tmp_path / "manifest.json"
    path.write_bytes(text.encode(errors="surrogateescape"))
    (problem,) = problems(path)
    assert word in problem


def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    assert "No such file" in problems(tmp_path / "missing.json")[0]
    assert "null" in problems(tmp_path / "a\0b")[0]
    assert "directory" in problems(tmp_path)[0]


def test_a_file_that_is_too_large_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "manifest.json"
    path.write_text(json.dumps({"description": "x" * 17_000_000}))
    assert "larger" in problems(path)[0]


def test_a_problem_shows_no_control_characters() -> None:
    for document in ({"\x1b[2J": 1}, rule(target="\x1b[2J"), rule(operation="\n")):
        assert all(problem.isprintable() for problem in problems(document))
