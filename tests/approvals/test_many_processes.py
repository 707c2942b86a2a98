"""Many processes on one store: no lost decision, no double one, one row however many ask."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from approvals.cases import ADA, BOB, read

from democrai_osguard.approvals import ApprovalService, open_store

if TYPE_CHECKING:
    from pathlib import Path

# Each process asks for the same things and decides them, and prints what it was told.
WORKER = """
import json, sys
from democrai_osguard.approvals import ApprovalService, Operator, open_store
from democrai_osguard import Subject
from democrai_osguard.access import AccessRequest, Operation, ResourceType
from democrai_osguard.audit import AuditLog
url, name, audit = sys.argv[1:]
service = ApprovalService(open_store(url), audit=AuditLog(audit))
operator = Operator(name, super_role=True)
module = Subject.parse("module:notes")
told = []
for number in range(15):
    request = AccessRequest(module, ResourceType.FILESYSTEM, Operation.READ, f"/srv/{number}", "s")
    asked = service.register(request)
    scope = "permanent" if hash(name) % 2 else "denied"
    outcome = service.decide(asked.id, scope, operator)
    told.append((asked.id, outcome.applied, outcome.request.decided_by))
service.close()
print(json.dumps(told))
"""
PROCESSES = 6


@pytest.mark.always
def test_processes_that_decide_at_once_leave_one_decision_each(
    store_url: str, tmp_path: Path
) -> None:
    command = [sys.executable, "-c", WORKER, store_url]
    workers = [
        subprocess.Popen(
            [*command, f"operator-{number}", str(tmp_path / "audit")],
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(PROCESSES)
    ]
    told = [answer for worker in workers for answer in json.loads(worker.communicate()[0])]
    assert [worker.returncode for worker in workers] == [0] * PROCESSES
    service = ApprovalService(open_store(store_url))
    rows = {request.id: request for request in service.list_requests(pending=False)}
    for request_id, row in rows.items():
        answers = [answer for answer in told if answer[0] == request_id]
        assert sum(applied for _, applied, _ in answers) == 1
        assert {decided_by for *_, decided_by in answers} == {row.decided_by}
    applied = sum(applied for _, applied, _ in told)
    assert len(service.list_history()) == applied == len(rows)
    service.close()


@pytest.mark.always
def test_threads_that_ask_at_once_share_one_row(service: ApprovalService) -> None:
    with ThreadPoolExecutor(8) as pool:
        asked = list(pool.map(lambda _: service.register(read("/srv/a")), range(40)))
    assert len({request.id for request in asked}) == 1
    assert service.get(asked[0].id).count == 40


ASKER = """
import sys
from concurrent.futures import ThreadPoolExecutor
from democrai_osguard.approvals import ApprovalService, open_store
from democrai_osguard import Subject
from democrai_osguard.access import AccessRequest, Operation, ResourceType
service = ApprovalService(open_store(sys.argv[1]))
module = Subject.parse("module:notes")
def ask(number):
    session = f"s{number % 2}"
    request = AccessRequest(module, ResourceType.FILESYSTEM, Operation.READ, "/srv/a", session)
    return service.register(request).id
with ThreadPoolExecutor(4) as pool:
    print(*pool.map(ask, range(40)))
service.close()
"""


@pytest.mark.always
def test_processes_with_threads_that_ask_at_once_share_one_row_for_each_session(
    store_url: str,
) -> None:
    command = [sys.executable, "-c", ASKER, store_url]
    askers = [
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(PROCESSES)
    ]
    told = {name for asker in askers for name in asker.communicate()[0].split()}
    assert [asker.returncode for asker in askers] == [0] * PROCESSES
    service = ApprovalService(open_store(store_url))
    rows = service.list_requests(pending=False)
    assert {row.id for row in rows} == told
    assert [row.count for row in rows] == [20 * PROCESSES] * 2
    assert {row.origin.session_key for row in rows} == {"s0", "s1"}
    service.close()


@pytest.mark.always
def test_two_operators_at_once_leave_one_decision(service: ApprovalService) -> None:
    for number in range(10):
        asked = service.register(read(f"/srv/{number}"))
        gate = threading.Barrier(2)

        def decide(who: int, request_id: str = asked.id, gate: threading.Barrier = gate) -> bool:
            gate.wait()
            if who:
                return service.approve_permanently(request_id, ADA).applied
            return service.deny(request_id, BOB).applied

        with ThreadPoolExecutor(2) as pool:
            assert sorted(pool.map(decide, (0, 1))) == [False, True]
    assert len(service.list_decisions()) == 10


def test_a_change_by_another_process_is_seen_within_a_second(
    service: ApprovalService, store_url: str
) -> None:
    now = [0.0]
    verdicts = service.verdicts()
    verdicts._clock = lambda: now[0]  # noqa: SLF001 - a test's own time
    assert verdicts.permanent_approval(read("/srv/a")) is None
    other = ApprovalService(open_store(store_url))
    other.approve_permanently(other.register(read("/srv/a")).id, ADA)
    other.close()
    now[0] += 1.0
    assert verdicts.permanent_approval(read("/srv/a")) is not None


def test_an_own_decision_counts_at_once(service: ApprovalService) -> None:
    verdicts = service.verdicts()
    assert verdicts.denial(read("/srv/a")) is None
    service.deny(service.register(read("/srv/a")).id, ADA)
    assert verdicts.denial(read("/srv/a")) is not None


def test_a_fork_uses_connections_of_its_own(service: ApprovalService) -> None:
    import os  # noqa: PLC0415 - only here

    service.register(read("/srv/a"))
    child = os.fork()
    if child == 0:
        status = 1
        try:
            service.register(read("/srv/a"))
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    (request,) = service.list_requests()
    assert request.count == 2
