"""Resume contexts on both stores: sealed, bound to their request, run once, as the requester."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
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
    verdicts,
)
from democrai_osguard.approvals.keys import KeyFile
from democrai_osguard.approvals.sql_store import SqlStore
from democrai_osguard.approvals.vault import CONTEXT_LIMIT, Vault

if TYPE_CHECKING:
    from pathlib import Path

SECRET = "hunter2-in-the-context"  # noqa: S105 - what must never show
RESUME = Resume("system.resume_import", {"password": SECRET})
ORIGIN = Origin(21, None, "sess-1", "task-123")


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


def test_it_sees_the_approval_that_it_was_waiting_for(
    service: ApprovalService, store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verdicts, "FRESH_SECONDS", 1e9)  # no answer is forgotten by itself
    known, seen = service.verdicts(), []
    asked = service.register(read("/srv/a"), ORIGIN, resume=RESUME)
    assert known.permanent_approval(read("/srv/a")) is None
    other = ApprovalService(open_store(store_url))
    other.approve_permanently(asked.id, ADA)
    other.close()
    assert known.permanent_approval(read("/srv/a")) is None  # the control: it is remembered
    run_resumes(
        service, {RESUME.action: lambda _: seen.append(known.permanent_approval(read("/srv/a")))}
    )
    assert seen == [read("/srv/a").rule]


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


def test_many_workers_at_once_run_each_once(service: ApprovalService) -> None:
    ran: list[str] = []
    ids = [approved(service, f"/srv/{number}") for number in range(8)]
    actions = {RESUME.action: lambda call: ran.append(call.request.id)}
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: run_resumes(service, actions), range(4)))
    assert sorted(ran) == sorted(ids)


def test_the_context_shows_nowhere(service: ApprovalService, tmp_path: Path) -> None:
    asked = service.register(read("/srv/a"), ORIGIN, resume=RESUME)
    service.approve_permanently(asked.id, ADA)
    shown = [repr(RESUME), repr(service.get(asked.id)), str(service.get(asked.id).document())]
    shown += [repr(each) for each in service.list_history()]
    run_resumes(service, {RESUME.action: lambda call: shown.append(repr(call))})
    for table in ("approval_requests", "approval_history", "approval_standing"):
        shown += map(str, fetch(service, f"SELECT * FROM {table}"))  # noqa: S608 - a test's own
    assert not any(SECRET in text for text in shown)
    assert not any(SECRET.encode().hex() in text for text in shown)
    for path in tmp_path.rglob("*"):
        if path.is_file():
            assert SECRET.encode() not in path.read_bytes(), path.name


def change(service: ApprovalService, sql: str, values: tuple[object, ...] = ()) -> None:
    """Change the store behind the program's back."""
    assert isinstance(service.store, SqlStore)
    with service.store.database.write() as transaction:
        assert transaction.change(sql, values) > 0


def fetch(service: ApprovalService, sql: str) -> list[tuple[object, ...]]:
    assert isinstance(service.store, SqlStore)
    return service.store.database.fetch(sql)


def test_a_context_cannot_be_moved_to_another_request(
    service: ApprovalService, calls: list[ResumeCall]
) -> None:
    approved(service, "/srv/a")
    other = approved(service, "/srv/b")
    change(
        service,
        "UPDATE approval_requests SET resume_sealed = (SELECT resume_sealed FROM"
        " approval_requests WHERE id <> ?) WHERE id = ?",
        (other, other),
    )
    run_resumes(service, {RESUME.action: calls.append})
    assert service.get(other).resume_state == "failed"
    assert len(calls) == 1


def test_a_context_with_a_changed_byte_is_not_run(
    service: ApprovalService, calls: list[ResumeCall], caplog: pytest.LogCaptureFixture
) -> None:
    request_id = approved(service)
    ((sealed,),) = fetch(service, "SELECT resume_sealed FROM approval_requests")
    assert isinstance(sealed, bytes)
    changed = sealed[:-1] + bytes([sealed[-1] ^ 1])
    change(service, "UPDATE approval_requests SET resume_sealed = ?", (changed,))
    run_resumes(service, {RESUME.action: calls.append})
    assert (calls, service.get(request_id).resume_state) == ([], "failed")
    assert "ResumeTampered" in caplog.text


def test_a_context_whose_key_is_lost_is_not_run(
    service: ApprovalService, calls: list[ResumeCall], tmp_path: Path
) -> None:
    request_id = approved(service)
    (tmp_path / "keys" / "resume.keys").unlink()
    other = ApprovalService(
        service.store, vault=Vault(KeyFile(f"{tmp_path}/keys/resume.keys")), audit=service.audit
    )
    with pytest.raises(ResumeFailed, match="gone"):
        rotate_keys(other)
    run_resumes(other, {RESUME.action: calls.append})
    assert (calls, service.get(request_id).resume_state) == ([], "failed")


@pytest.mark.parametrize(
    "changed",
    ["user_id = '1'", "session_key = 'x'", "resume_action = 'b'", "subject_name = 'b'",
     "operation = 'modify'", "task_id = '\"t\"'"],
)  # fmt: skip
def test_a_context_belongs_to_its_whole_identity(
    service: ApprovalService, calls: list[ResumeCall], changed: str
) -> None:
    approved(service)
    change(service, f"UPDATE approval_requests SET {changed}")  # noqa: S608 - a test's own
    run_resumes(service, {RESUME.action: calls.append, "b": calls.append})
    assert calls == []


def test_rotation_keeps_old_contexts_readable(
    service: ApprovalService, calls: list[ResumeCall]
) -> None:
    approved(service)
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
