"""What waits behind an approval runs once, the same on both stores."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from approvals.cases import ADA, read

from democrai_osguard.approvals import Origin, Resume, rotate_keys, run_resumes

if TYPE_CHECKING:
    from democrai_osguard.approvals import ApprovalService, ResumeCall

RESUME = Resume("system.resume_import", {"file": "customers.csv"})
ORIGIN = Origin(21, None, "sess-1", "task-123")


def approved(service: ApprovalService, path: str = "/srv/a") -> str:
    asked = service.register(read(path), ORIGIN, resume=RESUME)
    service.approve_permanently(asked.id, ADA)
    return asked.id


def test_it_runs_once_as_whoever_asked(service: ApprovalService) -> None:
    calls: list[ResumeCall] = []
    approved(service)
    rotate_keys(service, drop_old=True)
    run_resumes(service, {RESUME.action: calls.append})
    run_resumes(service, {RESUME.action: calls.append})
    assert [(call.origin, call.context) for call in calls] == [(ORIGIN, RESUME.context)]


def test_many_workers_at_once_run_each_once(service: ApprovalService) -> None:
    calls: list[str] = []
    ids = [approved(service, f"/srv/{number}") for number in range(8)]
    actions = {RESUME.action: lambda call: calls.append(call.request.id)}
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: run_resumes(service, actions), range(4)))
    assert sorted(calls) == sorted(ids)


@pytest.mark.parametrize("dies", ["before", "in the middle"])
def test_a_process_that_dies_leaves_at_most_one_run(service: ApprovalService, dies: str) -> None:
    calls: list[ResumeCall] = []
    request_id = approved(service)
    child = os.fork()
    if child == 0:
        if dies == "in the middle":
            run_resumes(service, {RESUME.action: lambda _: os._exit(9)})
        os._exit(9)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    run_resumes(service, {RESUME.action: calls.append})
    assert len(calls) == (1 if dies == "before" else 0)
    state = "done" if dies == "before" else "started"
    assert service.get(request_id).resume_state == state


def test_a_denial_withdraws_it(service: ApprovalService) -> None:
    request_id = approved(service)
    service.deny(request_id, ADA, overrule=True)
    assert run_resumes(service, {RESUME.action: lambda _: None}) == []
    assert service.get(request_id).resume_state == "withdrawn"
