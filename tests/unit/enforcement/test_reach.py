"""What decisions make of a sandbox: grants open, denials close, and neither reaches a stranger."""

from __future__ import annotations

from ipaddress import IPv4Network, ip_address, ip_network

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from democrai_osguard.access import Rule, Scope, Subject
from democrai_osguard.approvals.records import Standing
from democrai_osguard.enforcement.reach import Reach, reach
from democrai_osguard_helper.endpoints import Endpoint, NameRule, parse_network

SUBJECT = Subject.parse("module:notes")
ASKED = Reach(
    (Endpoint(parse_network("192.0.2.1"), 443), Endpoint(parse_network("198.51.100.0/24"))),
    (NameRule("api.example.com", 443), NameRule("*.example.org")),
)


def decided(
    target: str,
    scope: Scope = Scope.PERMANENT,
    *,
    operation: str = "connect",
    subject: str = "module:notes",
    session: str | None = None,
) -> Standing:
    rule = Rule.of("network", operation, target)
    return Standing(1, Subject.parse(subject), rule, scope, session, "ada", 0.0)


def places(*decisions: Standing, session: str | None = "s-1") -> set[str]:
    found = reach(ASKED, decisions, SUBJECT, session)
    addresses = {f"{e.network} {e.port}" for e in found.endpoints}
    return addresses | {f"{rule.name} {rule.port}" for rule in found.names}


FIRST = places()


def test_without_decisions_it_is_what_it_was_made_with() -> None:
    assert reach(ASKED, [], SUBJECT, None) == ASKED


@pytest.mark.parametrize(
    ("decision", "place"),
    [
        (decided("203.0.113.9:80"), "203.0.113.9 80"),
        (decided("203.0.113.9:80", Scope.SESSION, session="s-1"), "203.0.113.9 80"),
        (decided("https://www.example.net/v1", operation="receive"), "www.example.net 443"),
        (decided("[2001:db8::7]:443"), "2001:db8::7 443"),
    ],
)
def test_an_approval_opens_its_host_and_port(decision: Standing, place: str) -> None:
    assert places(decision) == FIRST | {place}


@pytest.mark.parametrize(
    "decision",
    [
        decided("203.0.113.9:80", subject="module:other"),
        decided("203.0.113.9:80", subject="tool:notes"),
        decided("203.0.113.9:80", Scope.SESSION, session="s-2"),
        decided("192.0.2.1:443", Scope.DENIED, subject="module:other"),
        decided("192.0.2.1:444", Scope.DENIED),
        decided("192.0.2.1:443", Scope.DENIED, operation="receive"),
        decided("https://api.example.com/v1", Scope.DENIED),
        decided("example.com:443", Scope.DENIED),
    ],
)
def test_what_is_about_something_else_changes_nothing(decision: Standing) -> None:
    assert places(decision) == FIRST


def test_a_task_is_known_by_its_module() -> None:
    task = Subject.parse("task:notes")
    found = reach(Reach((), ()), [decided("203.0.113.9:80")], task, None)
    assert len(found.endpoints) == (1 if task.identity == SUBJECT else 0)


@pytest.mark.parametrize(
    ("target", "gone"),
    [
        ("192.0.2.1:443", "192.0.2.1 443"),
        ("192.0.2.1", "192.0.2.1 443"),
        ("192.0.2.0/24", "192.0.2.1 443"),
        ("https://api.example.com", "api.example.com 443"),
        ("api.example.com", "api.example.com 443"),
        ("*.example.com", "api.example.com 443"),
        ("*.example.org:443", "*.example.org None"),
    ],
)
def test_a_denial_closes_what_the_manifest_opened(target: str, gone: str) -> None:
    assert gone in FIRST
    assert places(decided(target, Scope.DENIED)) == FIRST - {gone}


def test_a_denial_wins_over_an_approval_of_less() -> None:
    found = places(decided("203.0.113.9:80"), decided("203.0.113.0/24", Scope.DENIED))
    assert found == FIRST


def test_a_session_lifts_the_denial_of_the_same_for_itself() -> None:
    both = (
        decided("192.0.2.1:443", Scope.DENIED),
        decided("192.0.2.1:443", Scope.SESSION, session="s-1"),
    )
    assert places(*both) == FIRST
    assert places(*both, session="s-2") == FIRST - {"192.0.2.1 443"}


@given(
    outer=st.integers(0, 32), inner=st.integers(0, 32), number=st.integers(0, 2**32 - 1),
    asked=st.integers(0, 2**32 - 1),
)  # fmt: skip
def test_of_a_range_exactly_the_denied_addresses_go(
    outer: int, inner: int, number: int, asked: int
) -> None:
    wide, narrow = (IPv4Network((number, length), strict=False) for length in (outer, inner))
    # This machine is one host, whatever its address: its ranges are compared by that name.
    assume(not any(narrow.subnet_of(IPv4Network(own)) for own in ("127.0.0.0/8", "0.0.0.0/32")))
    made = Reach((Endpoint(parse_network(str(wide)), 443),), ())
    found = reach(made, [decided(str(narrow), Scope.DENIED)], SUBJECT, None)
    is_open = any(ip_address(asked) in ip_network(str(each.network)) for each in found.endpoints)
    assert is_open is (ip_address(asked) in wide and ip_address(asked) not in narrow)
