"""A tool's input is looked at before the tool runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from democrai_osguard import Allow, Deny, RequiresApproval, Subject
from democrai_osguard.access import Scope
from democrai_osguard.errors import ContractError, ProfileError
from democrai_osguard.permissions.precheck import PathField, ToolInputError, precheck, strictest
from democrai_osguard.permissions.profiles import profile_policy
from democrai_osguard.policy.ledger import Ledger

if TYPE_CHECKING:
    from pathlib import Path

    from democrai_osguard.policy.decision import Decision

TOOL = Subject.parse("tool:editor")
WRITE = (PathField("path", "write"),)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    (tmp_path / "work/.git/hooks").mkdir(parents=True)
    (tmp_path / "work/a.txt").write_text("a")
    (tmp_path / "outside.txt").write_text("o")
    (tmp_path / "work/link").symlink_to(tmp_path / "outside.txt")
    return tmp_path / "work"


def answers(
    schema: tuple[PathField, ...], tool_input: dict[str, object], workspace: Path,
    profile: str = "workspace_write", verdicts: Ledger | None = None,
) -> tuple[Decision, ...]:  # fmt: skip
    policy = profile_policy(profile, TOOL, [workspace], verdicts=verdicts)
    return precheck(schema, tool_input, policy, base=workspace)


@pytest.mark.parametrize(
    ("path", "answer"),
    [
        ("a.txt", Allow),
        ("new.txt", Allow),
        ("../outside.txt", RequiresApproval),
        ("link", RequiresApproval),
        (".git/hooks/pre-commit", RequiresApproval),
        (".env", RequiresApproval),
        ("none/../a.txt", Deny),
    ],
)
def test_writing_is_free_in_the_workspace_only(path: str, answer: type, workspace: Path) -> None:
    (decision,) = answers(WRITE, {"path": path}, workspace)
    assert isinstance(decision, answer)


@pytest.mark.parametrize(
    ("profile", "answer"),
    [("disabled", Allow), ("workspace_write", RequiresApproval), ("read_only", Deny)],
)
def test_a_write_outside_depends_on_the_profile(
    profile: str, answer: type, workspace: Path
) -> None:
    (decision,) = answers(WRITE, {"path": "../outside.txt"}, workspace, profile)
    assert isinstance(decision, answer)


def test_a_read_only_profile_is_not_opened_by_an_approval(workspace: Path) -> None:
    (asked,) = answers(WRITE, {"path": "a.txt"}, workspace, "read_only")
    assert isinstance(asked, Deny)
    approved = Ledger((asked.request.identity(Scope.PERMANENT),))
    (decision,) = answers(WRITE, {"path": "a.txt"}, workspace, "read_only", approved)
    assert isinstance(decision, Deny)


def test_reading_is_free_but_for_secrets(workspace: Path) -> None:
    read = (PathField("path", "read"),)
    assert isinstance(answers(read, {"path": "../outside.txt"}, workspace)[0], Allow)
    assert isinstance(answers(read, {"path": "key.pem"}, workspace)[0], RequiresApproval)
    assert isinstance(answers(read, {"path": "~/.ssh/config"}, workspace)[0], RequiresApproval)
    assert isinstance(answers(read, {"path": "/etc/shadow"}, workspace)[0], RequiresApproval)


def test_a_move_is_a_delete_and_a_create(workspace: Path) -> None:
    schema = (PathField("source", "move_from"), PathField("target", "move_to"))
    done = answers(schema, {"source": "a.txt", "target": "../b.txt"}, workspace)
    assert [type(decision) for decision in done] == [Allow, RequiresApproval]
    last = done[-1]
    assert isinstance(last, RequiresApproval)
    assert last.request.operation == "create"
    assert strictest(done) is last


def test_each_file_of_a_patch_counts(workspace: Path) -> None:
    patch = "*** Update File: a.txt\n*** Delete File: ../outside.txt\n*** Add File: a/b/c.txt\n"
    done = answers((PathField("diff", "patch"),), {"diff": patch}, workspace)
    assert [type(decision) for decision in done] == [Allow, RequiresApproval, Allow]


def test_lists_and_nested_fields_are_read(workspace: Path) -> None:
    schema = (PathField("options.files", "read"),)
    done = answers(schema, {"options": {"files": ["a.txt", "b.txt", "a.txt"]}}, workspace)
    assert len(done) == 2
    edits = (PathField("edits.path", "read"),)
    each: dict[str, object] = {"edits": [{"path": "a.txt"}, {"path": ["b.txt", ("c.txt",)]}]}
    assert len(answers(edits, each, workspace)) == 3
    assert len(answers(WRITE, {"path": workspace / "a.txt"}, workspace)) == 1


@pytest.mark.parametrize(
    "tool_input",
    [{}, {"path": None}, {"path": 5}, {"path": ["a", 5]}, {"path": ""}, {"path": {"a": "b"}},
     {"path": "a\0b"}, {"path": True}, {"path": b"a"}, {"path": []}, {"path": ["a", None]},
     {"path": "\ud800"}, {"path": "~nobody-of-that-name/x"}, None, [], "path", 5],
)  # fmt: skip
def test_a_path_that_cannot_be_read_stops_the_tool(
    tool_input: dict[str, object], workspace: Path
) -> None:
    with pytest.raises(ToolInputError):
        answers(WRITE, tool_input, workspace)


@pytest.mark.parametrize("tool_input", [{"options": "text"}, {"options": [5]}, "text", None])
def test_an_optional_path_is_not_overlooked_in_what_is_no_object(
    tool_input: dict[str, object], workspace: Path
) -> None:
    with pytest.raises(ToolInputError):
        answers((PathField("options.path", "read", required=False),), tool_input, workspace)


def test_a_link_that_leads_to_nothing_yet_counts_as_what_it_leads_to(workspace: Path) -> None:
    (workspace / "later").symlink_to(workspace.parent / "made-by-writing")
    done = answers(WRITE, {"path": "later"}, workspace)
    assert isinstance(strictest(done), RequiresApproval)
    assert [each.request.target for each in done if isinstance(each, RequiresApproval)] == [
        str((workspace.parent / "made-by-writing").resolve())
    ]


@pytest.mark.parametrize(
    ("effect", "path", "answer"),
    [
        ("delete", ".git", RequiresApproval),
        ("move_from", ".git", RequiresApproval),
        ("move_to", "sub/.git", RequiresApproval),
        ("write", ".git/objects/x", Allow),
        ("write", ".ENV", RequiresApproval),
        ("write", ".e\u200dnv", RequiresApproval),
        ("delete", "link", Allow),
    ],
)
def test_a_glob_is_not_got_round_by_moving_or_spelling(
    effect: str, path: str, answer: type, workspace: Path
) -> None:
    (decision,) = answers((PathField("path", effect),), {"path": path}, workspace)
    assert isinstance(decision, answer)


def test_an_optional_path_may_be_missing(workspace: Path) -> None:
    assert answers((PathField("path", "read", required=False),), {}, workspace) == ()
    assert strictest(()) is None


def test_a_patch_without_files_stops_the_tool(workspace: Path) -> None:
    with pytest.raises(ToolInputError):
        answers((PathField("diff", "patch"),), {"diff": "nothing here"}, workspace)


def test_unknown_effects_and_profiles_are_errors(workspace: Path) -> None:
    with pytest.raises(ContractError):
        PathField("path", "overwrite")
    with pytest.raises(ProfileError):
        profile_policy("open", TOOL, [workspace])
    with pytest.raises(ProfileError):
        profile_policy("workspace_write", TOOL, [workspace], deny_read=["["])
