"""Questions of held calls: what is asked, how often, and what a silence means."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from democrai_osguard.access import Identity, Operation, ResourceType, Scope, Subject, SubjectType
from democrai_osguard.approvals.opening import open_store
from democrai_osguard.approvals.records import Operator, Origin
from democrai_osguard.approvals.service import ApprovalService
from democrai_osguard.enforcement.held import NO, ONCE, PER_SECOND, YES, HeldDesk
from democrai_osguard.enforcement.held_notices import Notices

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

OPERATOR = Operator("tester", super_role=True)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def service(tmp_path: Path) -> Iterator[ApprovalService]:
    own = ApprovalService(open_store(f"sqlite://{tmp_path}/store"))
    yield own
    own.close()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def desk(service: ApprovalService, clock: Clock) -> HeldDesk:
    subject = Subject(SubjectType.MODULE, "notes")
    return HeldDesk(service, subject, Origin(session_key="s"), timeout=60, clock=clock)


def question(number: int, target: str = "/x") -> dict[str, object]:
    return {
        "id": number, "operation": "read", "target": target, "resource_type": "filesystem",
        "pid": 7, "command": "cat",
    }  # fmt: skip


def test_a_decision_is_answered_at_once(desk: HeldDesk, service: ApprovalService) -> None:
    for scope, word in ((Scope.DENIED, NO), (Scope.PERMANENT, YES), (Scope.SESSION, YES)):
        own = Identity(
            SubjectType.MODULE, "notes", ResourceType.FILESYSTEM, Operation.READ,
            f"/{scope}", scope, "s" if scope is Scope.SESSION else None,
        )  # fmt: skip
        service.record(own, OPERATOR)
        desk.take(question(1, f"/{scope}"))
        assert desk.answers() == [(1, word)]
    assert service.list_requests() == []


def test_an_answer_comes_back(desk: HeldDesk, service: ApprovalService) -> None:
    for number in range(3):
        desk.take(question(number, f"/{number}"))
    assert desk.answers() == []
    ids = desk.open_requests()
    service.approve_once(ids[0], OPERATOR)
    service.approve_for_session(ids[1], OPERATOR)
    service.deny(ids[2], OPERATOR)
    assert desk.answers() == [(0, ONCE), (1, YES), (2, NO)]
    assert desk.answers() == []


def test_silence_is_a_no(desk: HeldDesk, service: ApprovalService, clock: Clock) -> None:
    desk.take(question(1))
    assert desk.answers() == []
    clock.now = 61
    assert desk.answers() == [(1, NO)]
    assert service.list_requests() == []


def test_a_question_of_two_runs_is_said_by_each_and_its_silence_too(
    service: ApprovalService, clock: Clock, capfd: pytest.CaptureFixture[str]
) -> None:
    runs = [_saying(service, clock) for _ in range(2)]
    for each in runs:
        each.take(question(1))
        each.answers()
    assert runs[0].open_requests() == runs[1].open_requests()
    assert capfd.readouterr().err.count("democrai-launch: waits up to 60 s") == 2
    clock.now = 61
    assert [each.answers() for each in runs] == [[(1, NO)]] * 2
    assert capfd.readouterr().err.count("democrai-launch: nobody answered in time") == 2


def test_two_calls_with_one_request_are_said_once(
    service: ApprovalService, clock: Clock, capfd: pytest.CaptureFixture[str]
) -> None:
    run = _saying(service, clock)
    run.take(question(1))
    run.take(question(2))
    run.answers()
    clock.now = 61
    assert run.answers() == [(1, NO), (2, NO)]
    assert len(capfd.readouterr().err.splitlines()) == 2


def _saying(service: ApprovalService, clock: Clock) -> HeldDesk:
    subject, notices = Subject(SubjectType.MODULE, "notes"), Notices(60)
    return HeldDesk(service, subject, Origin(), timeout=60, notices=notices, clock=clock)


def test_ten_a_second_at_most(desk: HeldDesk, service: ApprovalService, clock: Clock) -> None:
    for number in range(25):
        desk.take(question(number, f"/{number}"))
    for asked in (PER_SECOND, 2 * PER_SECOND, 25):
        desk.answers()
        desk.answers()
        assert len(service.list_requests()) == asked
        clock.now += 1.01


def test_what_nobody_waits_for_is_taken_back(desk: HeldDesk, service: ApprovalService) -> None:
    desk.take(question(1))
    desk.take(question(2, "/y"))
    desk.answers()
    desk.take({"gone": 1})
    assert [request.rule.target for request in service.list_requests()] == ["/y"]
    desk.close()
    assert service.list_requests() == []


def test_what_belongs_to_the_guard_itself_is_never_asked(
    service: ApprovalService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEMOCRAI_STATE_DIR", str(tmp_path / "state"))
    desk = HeldDesk(service, Subject(SubjectType.MODULE, "notes"), Origin(), timeout=60)
    for number, name in enumerate(("keys/resume.keys", "approvals/approvals.sqlite3", "audit")):
        desk.take(question(number, f"{tmp_path}/state/{name}"))
        assert desk.answers() == [(number, NO)]
    assert service.list_requests(pending=False) == []
    desk.take(question(9, f"{tmp_path}/other"))  # as one beside it is
    assert desk.answers() == []
    assert len(service.list_requests()) == 1


def test_the_chain_is_shown(service: ApprovalService) -> None:
    chain = (Subject(SubjectType.MODULE, "notes"), Subject(SubjectType.TOOL, "reader"))
    desk = HeldDesk(service, chain[1], Origin(), timeout=60, chain=chain)
    desk.take(question(1))
    desk.answers()
    assert [request.chain for request in service.list_requests()] == [chain]


def test_what_cannot_be_asked_is_a_no(desk: HeldDesk) -> None:
    desk.take({**question(1), "operation": "write"})
    desk.take({**question(2), "target": "/a/../b"})
    assert sorted(desk.answers()) == [(1, NO), (2, NO)]
