"""What is said of network rules when the helper holds addresses, and what is left to it."""

from __future__ import annotations

import pytest

from democrai_osguard_launcher import landlock
from democrai_osguard_launcher.network_plan import NetworkPlan
from democrai_osguard_launcher.rules import NETWORK, Rule

NEWEST = 10
ABLE = landlock.abilities(NEWEST).network


def rule(target: str, operation: str = "connect") -> Rule:
    return Rule(NETWORK, operation, target)


@pytest.mark.parametrize(
    ("target", "operation", "exact", "words"),
    [
        ("192.0.2.1:443", "connect", True, "by address and port"),
        ("api.example.com:443", "connect", True, "by address and port"),
        ("api.example.com:443", "send", False, "the guard's"),
        ("https://api.example.com/v1", "connect", False, "the guard's"),
        ("*.example.com:443", "connect", False, "no address"),
        ("https://*.example.com", "receive", False, "no address"),
    ],
)
def test_a_rule_is_exact_only_where_the_helper_holds_what_it_says(
    target: str, operation: str, exact: bool, words: str
) -> None:
    plan = NetworkPlan([rule(target, operation)], NEWEST, helper=True)
    assert plan.is_exact(rule(target, operation)) is exact
    assert words in plan.held_by(rule(target, operation))


def test_names_below_a_suffix_are_said_to_stay_closed() -> None:
    rules = [rule("*.example.com:443"), rule("api.example.org:443")]
    (note,) = NetworkPlan(rules, NEWEST, helper=True).notes()
    assert note.startswith("names below *.example.com:443 stay closed")
    assert "example.org" not in note
    assert list(NetworkPlan(rules[1:], NEWEST, helper=True).notes()) == []
    assert list(NetworkPlan(rules, NEWEST, helper=False).notes()) == []


def test_what_the_helper_holds_is_not_fixed_by_landlock() -> None:
    """An approval must be able to open another port; without the helper ports stay as they are."""
    rules = [rule("192.0.2.1:443")]
    connecting = landlock.CONNECT_TCP | landlock.CONNECT_SEND_UDP
    assert NetworkPlan(rules, NEWEST, helper=True).handled(ABLE) & connecting == 0
    assert list(NetworkPlan(rules, NEWEST, helper=True).ports(ABLE)) == []
    assert NetworkPlan(rules, NEWEST, helper=False).handled(ABLE) & connecting == connecting
    assert [p.port for p in NetworkPlan(rules, NEWEST, helper=False).ports(ABLE)] == [443]


def test_without_network_rules_everything_stays_handled() -> None:
    assert NetworkPlan([], NEWEST, helper=True).handled(ABLE) == ABLE


def test_two_rules_about_one_place_are_one_way_out() -> None:
    rules = [rule("https://index.example.com", "receive"), rule("index.example.com:443")]
    plan = NetworkPlan(rules, NEWEST, helper=False)
    assert [(each.host, each.port) for each in plan.endpoints] == [("index.example.com", 443)]
