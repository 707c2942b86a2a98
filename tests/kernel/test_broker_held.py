"""Supervised runs: an act that no rule allows waits for a person, and then succeeds or fails."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from kernel.people import (
    CAT,
    DEADLINE,
    OPERATOR,
    asked,
    python,
    somebody,
    until,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kernel.conftest import Launch, Start

    from democrai_osguard.approvals.service import ApprovalService

pytestmark = pytest.mark.needs("landlock", "landlock-truncate", "seccomp")

# Each act, what it asks for, and how one sees that it happened.
ACTS: dict[str, tuple[str, set[str], Callable[[Path], bool]]] = {
    "read": ("assert (at / 'file').read_text()", {"read file"}, lambda _: True),
    "list": ("assert os.listdir(at)", {"read work"}, lambda _: True),
    "append": (
        "open(at / 'file', 'a').write('more')", {"modify file"},
        lambda at: "more" in (at / "file").read_text(),
    ),
    "overwrite": (
        "(at / 'file').write_text('new')", {"modify file"},
        lambda at: (at / "file").read_text() == "new",
    ),
    "read and write": ("open(at / 'file', 'r+').write('X')", {"read file", "modify file"},
                       lambda at: (at / "file").read_text().startswith("X")),
    "create": (
        "(at / 'new').write_text('x')", {"create new"},
        lambda at: (at / "new").exists() and (at / "new").read_text() == "x",
    ),
    "make a folder": ("(at / 'new').mkdir()", {"create new"}, lambda at: (at / "new").is_dir()),
    "make a link": (
        "(at / 'new').symlink_to('x')", {"create new"}, lambda at: (at / "new").is_symlink()
    ),
    "make a fifo": ("os.mkfifo(at / 'new')", {"create new"}, lambda at: (at / "new").exists()),
    "remove": ("(at / 'file').unlink()", {"delete file"}, lambda at: not (at / "file").exists()),
    "remove a folder": (
        "(at / 'empty').rmdir()", {"delete empty"}, lambda at: not (at / "empty").exists()
    ),
    "rename": (
        "(at / 'file').rename(at / 'new')", {"delete file", "create new"},
        lambda at: (at / "new").exists(),
    ),
    "rename, with slashes": (
        "os.rename('empty/', 'new/')", {"delete empty", "create new"},
        lambda at: (at / "new").is_dir(),
    ),
    "truncate": (
        "os.truncate(at / 'file', 1)", {"modify file"}, lambda at: (at / "file").stat().st_size == 1
    ),
    "chmod": (
        "(at / 'file').chmod(0o600)", {"modify file"},
        lambda at: (at / "file").stat().st_mode & 0o777 == 0o600,
    ),
    "touch": (
        "os.utime(at / 'file', (1, 1))", {"modify file"},
        lambda at: (at / "file").stat().st_mtime == 1,
    ),
}  # fmt: skip


@pytest.mark.parametrize("act", ACTS)
def test_an_approved_act_succeeds_and_nothing_is_stored(
    act: str, start: Start, service: ApprovalService, work: Path
) -> None:
    script, wanted, happened = ACTS[act]
    with somebody(service, lambda each: service.approve_once(each, OPERATOR)) as questions:
        output, errors = start(*python(script)).communicate(timeout=DEADLINE)
    assert output == "ready\ndone\n"
    assert all(line.startswith("democrai-launch: waits ") for line in errors.splitlines()), errors
    assert set(questions) == wanted
    assert happened(work)
    assert service.list_decisions() == []
    assert {entry.act for entry in service.list_history()} == {"once"}


@pytest.mark.parametrize("act", ACTS)
def test_a_denied_act_fails_and_is_never_asked_again(
    act: str, start: Start, service: ApprovalService, work: Path
) -> None:
    script, _, happened = ACTS[act]
    with somebody(service, lambda each: service.deny(each, OPERATOR)):
        output, _ = start(*python(script)).communicate(timeout=DEADLINE)
    assert output == "ready\nPermissionError\n"
    assert not happened(work) or act in {"read", "list"}
    with somebody(service, lambda each: service.approve_once(each, OPERATOR)) as questions:
        output, _ = start(*python(script)).communicate(timeout=DEADLINE)
    assert output == "ready\nPermissionError\n"
    assert not questions or act in {
        "rename",
        "rename, with slashes",
        "read and write",
    }  # the other half was not denied


def test_without_supervision_nobody_is_asked(
    launch: Launch, service: ApprovalService, work: Path
) -> None:
    result = launch("--subject", "module:notes", "--", "cat", work / "file")
    assert (result.stdout, service.list_requests()) == ("", [])


def test_the_question_shows_who_wants_what_and_how(
    start: Start, service: ApprovalService, work: Path
) -> None:
    process = start("cat", "file")
    request = asked(service)
    assert (str(request.subject), request.held) == ("module:notes", True)
    assert [str(each) for each in request.chain] == ["module:notes"]
    assert (request.label, request.rule.target) == ("Filesystem read", str(work / "file"))
    assert str(request.origin.task_id).endswith(": cat file")
    service.approve_once(request.id, OPERATOR)
    assert process.communicate(timeout=DEADLINE)[0] == "content\n"


@pytest.mark.parametrize(
    ("variable", "chain"),
    [
        ('["agent:a", "module:notes"]', ["agent:a", "module:notes"]),
        ('["agent:a", "tool:other"]', ["module:notes"]),
    ],
)
def test_the_question_shows_through_whom_the_run_was_started(
    variable: str,
    chain: list[str],
    start: Start,
    service: ApprovalService,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DEMOCRAI_SUBJECT_CHAIN", variable)
    start("cat", "file")
    assert [str(each) for each in asked(service).chain] == chain


@pytest.mark.parametrize("scope", ["session", "permanent"])
def test_an_approval_counts_from_then_on(
    scope: str, start: Start, service: ApprovalService
) -> None:
    process = start("sh", "-c", "exec < file; cat; exec < file; cat", options=CAT)
    service.decide(asked(service).id, scope, OPERATOR)
    assert process.communicate(timeout=DEADLINE)[0] == "content\n" * 2
    assert start("cat", "file").communicate(timeout=DEADLINE)[0] == "content\n"
    assert [entry.scope for entry in service.list_decisions()] == [scope]


def test_once_is_for_one_call(start: Start, service: ApprovalService) -> None:
    process = start("sh", "-c", "cat file; cat file", options=CAT)
    first = asked(service)
    service.approve_once(first.id, OPERATOR)
    until(lambda: [each for each in service.list_requests() if each.id != first.id])
    service.deny(service.list_requests()[0].id, OPERATOR)
    assert process.communicate(timeout=DEADLINE)[0] == "content\n"
