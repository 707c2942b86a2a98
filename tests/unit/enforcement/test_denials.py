"""Refused connections become pending requests, once each and not too many."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from democrai_osguard.approvals import ApprovalService, Operator, open_store
from democrai_osguard.enforcement.denials import COUNT_SECONDS, PER_SECOND, DenialDesk
from democrai_osguard_helper.protocol import Denial, Notice, Subject

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def denial(address: str = "192.0.2.7", port: int = 443, name: str | None = None) -> Denial:
    subject = Subject("tool", "notes.fetch")
    return Denial("0123456789ab", os.geteuid(), subject, "s-1", address, port, "tcp", name, 1)


@pytest.fixture
def service(tmp_path: Path) -> Iterator[ApprovalService]:
    made = ApprovalService(open_store(f"sqlite://{tmp_path}/state/a.sqlite3"))
    yield made
    made.close()


@pytest.mark.parametrize(
    ("event", "target"),
    [
        (denial(), "192.0.2.7:443"),
        (denial("2001:db8::7", 443), "[2001:db8::7]:443"),
        (denial("::ffff:192.0.2.7", 80), "192.0.2.7:80"),
        (denial(name="api.example.com"), "api.example.com:443"),
        (denial("127.0.0.1", 5432), "localhost:5432"),
        (denial(port=0), "192.0.2.7"),
    ],
)
def test_a_denial_is_a_request_to_connect(
    event: Denial, target: str, service: ApprovalService
) -> None:
    DenialDesk(service).follow([Notice(None, "repaired", "a rule was put back"), event])
    (asked,) = service.list_requests()
    assert (str(asked.subject), asked.rule.operation, asked.rule.target) == (
        "tool:notes.fetch", "connect", target,
    )  # fmt: skip
    assert asked.has_session


def test_the_same_refusal_is_one_request_that_counts(service: ApprovalService) -> None:
    now = [0.0]
    desk = DenialDesk(service, lambda: now[0])
    for second in (0.0, 1.0, COUNT_SECONDS, COUNT_SECONDS + 1, 2 * COUNT_SECONDS):
        now[0] = second
        desk.follow([denial()])
    (asked,) = service.list_requests()
    assert (asked.count, desk.passed_over) == (3, 0)


def test_what_was_decided_is_asked_again_when_it_is_refused_again(service: ApprovalService) -> None:
    desk = DenialDesk(service)
    desk.follow([denial()])
    (asked,) = service.list_requests()
    ada = Operator("ada", super_role=True)
    service.approve_for_session(asked.id, ada)
    service.revoke(service.list_decisions()[0].id, ada)
    assert service.list_requests() == []
    desk.follow([denial(), denial()])
    assert [each.count for each in service.list_requests()] == [1]


def test_what_another_user_s_sandbox_was_refused_is_no_question_here(
    service: ApprovalService,
) -> None:
    other = replace(denial(), uid=os.geteuid() + 1)
    DenialDesk(service).follow([other])
    assert service.list_requests() == []
    DenialDesk(service).follow([other, denial()])
    assert [asked.count for asked in service.list_requests()] == [1]


def test_a_flood_leaves_room_for_others_later(service: ApprovalService) -> None:
    now = [0.0]
    desk = DenialDesk(service, lambda: now[0])
    desk.follow(denial(port=port) for port in range(1, 101))
    assert len(service.list_requests()) == int(PER_SECOND / 2)
    assert desk.passed_over == 100 - int(PER_SECOND / 2)
    now[0] = 1.0
    assert desk.register(denial(port=999))


def test_one_subject_s_flood_leaves_room_for_another_at_once(service: ApprovalService) -> None:
    now = [0.0]
    desk = DenialDesk(service, lambda: now[0])
    for turn in range(20):
        now[0] += 0.5
        for port in range(1, 31):
            desk.register(denial(port=port + 30 * turn))
        quiet = replace(denial(port=turn + 1), subject=Subject("module", "quiet"))
        assert desk.register(quiet)
    assert len([r for r in service.list_requests() if str(r.subject) == "module:quiet"]) == 20


def test_places_that_are_tried_again_and_again_take_no_room(service: ApprovalService) -> None:
    now = [0.0]
    desk = DenialDesk(service, lambda: now[0])
    for _ in range(60):
        now[0] += 0.5
        for port in range(1, 13):
            desk.register(denial(port=port))
    assert len(service.list_requests()) == 12
    assert desk.register(denial(port=999))


def test_all_together_ask_no_more_than_so_many_a_second(service: ApprovalService) -> None:
    desk = DenialDesk(service, lambda: 0.0)
    for number in range(50):
        desk.register(replace(denial(), subject=Subject("module", f"m{number}")))
    assert len(service.list_requests()) == int(PER_SECOND)


def test_what_is_no_target_asks_nobody(service: ApprovalService) -> None:
    desk = DenialDesk(service)
    desk.follow([denial("not an address")])
    assert service.list_requests() == []
    assert desk.passed_over == 1
