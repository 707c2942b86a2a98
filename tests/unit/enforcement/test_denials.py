"""Refused connections become pending requests, once each and not too many."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from democrai_osguard.approvals import ApprovalService, open_store
from democrai_osguard.enforcement.denials import PER_SECOND, DenialDesk
from democrai_osguard_helper.protocol import Denial, Notice, Subject

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def denial(address: str = "192.0.2.7", port: int = 443, name: str | None = None) -> Denial:
    subject = Subject("tool", "notes.fetch")
    return Denial("0123456789ab", subject, "s-1", address, port, "tcp", name, 1)


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
    DenialDesk(service).follow([denial()] * 3)
    (asked,) = service.list_requests()
    assert asked.count == 3


def test_a_flood_leaves_room_for_others_later(service: ApprovalService) -> None:
    now = [0.0]
    desk = DenialDesk(service, lambda: now[0])
    desk.follow(denial(port=port) for port in range(1, 101))
    assert len(service.list_requests()) == int(PER_SECOND)
    assert desk.passed_over == 100 - int(PER_SECOND)
    now[0] = 1.0
    assert desk.register(denial(port=999))


def test_what_is_no_target_asks_nobody(service: ApprovalService) -> None:
    desk = DenialDesk(service)
    desk.follow([denial("not an address")])
    assert service.list_requests() == []
    assert desk.passed_over == 1
