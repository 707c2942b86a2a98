"""Killed between approval and resume, or amid it: picked up after a restart, never run twice."""

from __future__ import annotations

import os
import random
import select
import signal
import time
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from approvals.cases import ADA, read

from democrai_osguard.approvals import ApprovalService, Origin, Resume, open_store, run_resumes
from democrai_osguard.approvals.keys import KeyFile
from democrai_osguard.approvals.vault import Vault
from democrai_osguard.audit import AuditLog, verify

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from democrai_osguard.approvals import ResumeCall

RESUME = Resume("system.resume_import", {"file": "customers.csv"})
ORIGIN = Origin(21, None, "sess-1", "task-123")
KILLS = 60
PATIENCE = 60  # seconds for a child to say something on a busy machine


def opened(url: str, tmp_path: Path) -> ApprovalService:
    """Return a service as a process makes it when it starts."""
    vault = Vault(KeyFile(f"{tmp_path}/keys/resume.keys"))
    return ApprovalService(open_store(url), vault=vault, audit=AuditLog(f"{tmp_path}/audit"))


def ask_and_approve(service: ApprovalService, path: str) -> str:
    asked = service.register(read(path), ORIGIN, resume=RESUME)
    assert service.approve_permanently(asked.id, ADA).applied
    return asked.id


def killed(child: Callable[[int], object], after: Callable[[int], object]) -> str:
    """Run a child, kill it after something, and return all that it said."""
    hears, says = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            child(says)
        finally:
            os._exit(1)
    os.close(says)
    after(hears)
    os.kill(pid, signal.SIGKILL)
    assert os.WIFSIGNALED(os.waitpid(pid, 0)[1])
    with os.fdopen(hears) as pipe:
        return pipe.read()


def until_it_speaks(hears: int) -> None:
    assert select.select([hears], [], [], PATIENCE)[0]


@pytest.mark.parametrize("moment", ["between approval and resume", "amid the resume"])
def test_a_killed_process_leaves_at_most_one_run(
    store_url: str, tmp_path: Path, moment: str
) -> None:
    def child(says: int) -> None:
        service = opened(store_url, tmp_path)
        request_id = ask_and_approve(service, "/srv/a")

        def hang(_: ResumeCall | None) -> None:
            os.write(says, request_id.encode())
            time.sleep(2 * PATIENCE)

        if moment == "amid the resume":
            run_resumes(service, {RESUME.action: hang})
        hang(None)

    request_id = killed(child, until_it_speaks)
    calls: list[ResumeCall] = []
    service = opened(store_url, tmp_path)
    for _ in range(2):
        run_resumes(service, {RESUME.action: calls.append})
    amid = moment == "amid the resume"
    assert [(call.origin, call.context) for call in calls] == (
        [] if amid else [(ORIGIN, RESUME.context)]
    )
    assert service.get(request_id).resume_state == ("started" if amid else "done")
    service.close()
    assert verify(f"{tmp_path}/audit").flaws == []


def test_killed_at_any_moment_nothing_runs_twice_and_nothing_is_left(
    store_url: str, tmp_path: Path
) -> None:
    ran: Counter[str] = Counter()
    approved: list[str] = []
    open_store(store_url).close()
    for number in range(KILLS):

        def child(says: int, number: int = number) -> None:
            service = opened(store_url, tmp_path)
            for step in range(1000):
                request_id = ask_and_approve(service, f"/srv/{number}/{step}")
                os.write(says, f"approved {request_id}\n".encode())
                run_resumes(
                    service,
                    {
                        RESUME.action: lambda call: os.write(
                            says, f"ran {call.request.id}\n".encode()
                        )
                    },
                )

        def some_while_after(hears: int) -> None:
            until_it_speaks(hears)
            time.sleep(random.uniform(0, 0.02))  # noqa: S311 - no secret

        for line in killed(child, some_while_after).splitlines():
            word, request_id = line.split()
            if word == "ran":
                ran[request_id] += 1
            else:
                approved.append(request_id)
    service = opened(store_url, tmp_path)
    run_resumes(service, {RESUME.action: lambda call: ran.update([call.request.id])})
    assert max(ran.values()) == 1
    left = [each for each in approved if not ran[each]]
    # Only what was claimed by a process that died then; whether it had begun, nobody knows.
    assert {str(service.get(each).resume_state) for each in left} <= {"started"}
    assert service.store.ready_resumes() == []
    service.close()
    assert len(approved) >= KILLS
