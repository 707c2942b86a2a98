"""Resume contexts: sealed, bound to their request, run once and as the requester."""

from __future__ import annotations

import logging
import os
import sqlite3
from typing import TYPE_CHECKING

import pytest
from approvals.cases import ADA, read

from democrai_osguard.access import Scope
from democrai_osguard.approvals import (
    ApprovalService,
    Origin,
    Resume,
    ResumeCall,
    ResumeFailed,
    open_store,
    rotate_keys,
    run_resumes,
)
from democrai_osguard.approvals.keys import KeyFile
from democrai_osguard.approvals.vault import CONTEXT_LIMIT, Vault
from democrai_osguard.audit import AuditLog

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SECRET = "hunter2-in-the-context"  # noqa: S105 - what must never show
RESUME = Resume("system.resume_import", {"password": SECRET})
ORIGIN = Origin(21, None, "sess-1", "task-123")


@pytest.fixture
def service(tmp_path: Path) -> Iterator[ApprovalService]:
    """Return a service with a vault and an audit log."""
    made = ApprovalService(
        open_store(f"sqlite://{tmp_path}/store/s"),
        vault=Vault(KeyFile(f"{tmp_path}/keys/resume.keys")),
        audit=AuditLog(f"{tmp_path}/audit"),
    )
    yield made
    made.close()


@pytest.fixture
def calls() -> list[ResumeCall]:
    """Return the calls that the action of the tests was given."""
    return []


def approved(service: ApprovalService, path: str = "/srv/a") -> str:
    asked = service.register(read(path), ORIGIN, resume=RESUME)
    service.approve_permanently(asked.id, ADA)
    return asked.id


def test_it_runs_once_with_the_identity_of_whoever_asked(
    service: ApprovalService, calls: list[ResumeCall]
) -> None:
    request_id = approved(service)
    (ended,) = run_resumes(service, {RESUME.action: calls.append})
    assert ended.resume_state == "done"
    assert run_resumes(service, {RESUME.action: calls.append}) == []
    (call,) = calls
    assert (call.origin, call.context, call.request.id) == (ORIGIN, RESUME.context, request_id)


@pytest.mark.parametrize(
    "act", ["pending", "deny", "undo", "end_session", "overrule", "revoke", "newer denial"]
)
def test_it_does_not_run_without_an_approval(
    service: ApprovalService, calls: list[ResumeCall], act: str
) -> None:
    asked = service.register(read("/srv/a"), ORIGIN, resume=RESUME)
    if act == "deny":
        service.deny(asked.id, ADA)
    if act == "undo":
        outcome = service.approve_permanently(asked.id, ADA)
        assert outcome.decision is not None
        service.undo(outcome.decision.id, ADA)
    if act == "end_session":
        service.approve_permanently(asked.id, ADA)
        service.end_session("sess-1")
    if act == "overrule":
        service.approve_permanently(asked.id, ADA)
        service.deny(asked.id, ADA, overrule=True)
    if act == "revoke":
        service.approve_permanently(asked.id, ADA)
        service.revoke(service.list_decisions()[0].id, ADA)
    if act == "newer denial":
        service.approve_permanently(asked.id, ADA)
        service.record(read("/srv/a").identity(Scope.DENIED), ADA)
    assert run_resumes(service, {RESUME.action: calls.append}) == []
    assert calls == []


def test_a_denial_that_is_undone_leaves_it_resumable(
    service: ApprovalService, calls: list[ResumeCall]
) -> None:
    asked = service.register(read("/srv/a"), ORIGIN, resume=RESUME)
    outcome = service.deny(asked.id, ADA)
    assert outcome.decision is not None
    service.undo(outcome.decision.id, ADA)
    service.approve_permanently(asked.id, ADA)
    run_resumes(service, {RESUME.action: calls.append})
    assert len(calls) == 1


def test_an_action_that_raises_is_noted_and_not_repeated(
    service: ApprovalService, caplog: pytest.LogCaptureFixture
) -> None:
    def action(call: ResumeCall) -> None:
        raise RuntimeError(call.context["password"])

    approved(service)
    with caplog.at_level(logging.DEBUG):
        (ended,) = run_resumes(service, {RESUME.action: action})
    assert ended.resume_state == "failed"
    assert run_resumes(service, {RESUME.action: action}) == []
    assert "RuntimeError" in caplog.text
    assert SECRET not in caplog.text


def test_an_unknown_action_is_left_to_those_who_know_it(
    service: ApprovalService, calls: list[ResumeCall]
) -> None:
    approved(service)
    assert run_resumes(service, {}) == []
    assert len(run_resumes(service, {RESUME.action: calls.append})) == 1


@pytest.mark.parametrize("dies", ["before", "in the middle"])
def test_a_process_that_dies_leaves_at_most_one_run(
    service: ApprovalService, calls: list[ResumeCall], dies: str
) -> None:
    request_id = approved(service)
    service.close()
    child = os.fork()
    if child == 0:
        if dies == "in the middle":
            run_resumes(service, {RESUME.action: lambda _: os._exit(9)})
        os._exit(9)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    run_resumes(service, {RESUME.action: calls.append})
    assert len(calls) == (1 if dies == "before" else 0)
    expected = "done" if dies == "before" else "started"
    assert service.get(request_id).resume_state == expected


def test_the_context_shows_nowhere(service: ApprovalService, tmp_path: Path) -> None:
    asked = service.register(read("/srv/a"), ORIGIN, resume=RESUME)
    service.approve_permanently(asked.id, ADA)
    shown = [repr(RESUME), repr(service.get(asked.id)), str(service.get(asked.id).document())]
    shown += [repr(each) for each in service.list_history()]
    run_resumes(service, {RESUME.action: lambda call: shown.append(repr(call))})
    assert not any(SECRET in text for text in shown)
    for path in tmp_path.rglob("*"):
        if path.is_file():
            assert SECRET.encode() not in path.read_bytes(), path.name


def _sealed(tmp_path: Path) -> sqlite3.Connection:
    return sqlite3.connect(tmp_path / "store" / "s")


def test_a_context_cannot_be_moved_to_another_request(
    service: ApprovalService, tmp_path: Path, calls: list[ResumeCall]
) -> None:
    approved(service, "/srv/a")
    other = approved(service, "/srv/b")
    with _sealed(tmp_path) as connection:
        connection.execute(
            "UPDATE approval_requests SET resume_sealed = (SELECT resume_sealed FROM"
            " approval_requests WHERE id <> ?) WHERE id = ?",
            (other, other),
        )
    connection.close()
    run_resumes(service, {RESUME.action: calls.append})
    assert service.get(other).resume_state == "failed"
    assert len(calls) == 1


@pytest.mark.parametrize(
    "change",
    ["user_id = '1'", "session_key = 'x'", "resume_action = 'b'", "subject_name = 'b'",
     "operation = 'modify'", "task_id = '\"t\"'"],
)  # fmt: skip
def test_a_context_belongs_to_its_whole_identity(
    service: ApprovalService, tmp_path: Path, calls: list[ResumeCall], change: str
) -> None:
    approved(service)
    with _sealed(tmp_path) as connection:
        connection.execute(f"UPDATE approval_requests SET {change}")  # noqa: S608 - a test's own
    connection.close()
    run_resumes(service, {RESUME.action: calls.append, "b": calls.append})
    assert calls == []


def test_rotation_keeps_old_contexts_readable(
    service: ApprovalService, calls: list[ResumeCall]
) -> None:
    approved(service)
    assert service.vault is not None
    service.vault.keys.rotate()
    approved(service, "/srv/b")
    assert rotate_keys(service, drop_old=True) == 2
    assert len(service.vault.keys.load().keys) == 1
    assert len(run_resumes(service, {RESUME.action: calls.append})) == 2
    assert len(calls) == 2


def test_only_small_documents_are_sealed(service: ApprovalService) -> None:
    for context in ({"x": object()}, {"x": float("nan")}, {"x": "y" * CONTEXT_LIMIT}):
        with pytest.raises(ResumeFailed):
            service.register(read("/srv/a"), ORIGIN, resume=Resume("a", context))
    assert service.list_requests(pending=False) == []


def test_a_service_without_a_vault_takes_no_context(service: ApprovalService) -> None:
    bare = ApprovalService(service.store)
    with pytest.raises(ResumeFailed):
        bare.register(read("/srv/a"), ORIGIN, resume=RESUME)


def test_the_first_who_can_be_resumed_keeps_it(
    service: ApprovalService, calls: list[ResumeCall]
) -> None:
    service.register(read("/srv/a"))
    service.register(read("/srv/a"), ORIGIN, resume=RESUME)
    later = Origin(99, None, "sess-1")
    asked = service.register(read("/srv/a"), later, resume=Resume(RESUME.action, {"b": 2}))
    assert asked.origin == ORIGIN
    service.approve_permanently(asked.id, ADA)
    run_resumes(service, {RESUME.action: calls.append})
    assert calls[0].context == RESUME.context
