"""How long a decision takes, with few rules and with many."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from benchmarks.case import Case
from democrai_osguard import Policy, Rule, Subject, decide
from democrai_osguard.policy.chain import Chain
from democrai_osguard.targets.request import access_request

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.case import Act

_MODULE = Subject.parse("module:notes")


def cases() -> list[Case]:
    """Return the cases of this file."""
    return [
        _by_rules("path decision", _paths, ("filesystem", "read", "/srv/d{}/data/a/b/c")),
        _by_rules(
            "URL decision", _urls, ("network", "receive", "https://h{}.example.com/v1/a?b=c")
        ),
        _by_rules("refusal", _paths, ("filesystem", "read", "/srv/e{}/data/a/b/c")),
        _by_depth(),
    ]


def _by_rules(name: str, rules: Callable[[int], list[Rule]], asked: tuple[str, str, str]) -> Case:
    few, many = (
        _decisions(Chain.of(_MODULE, rules(count)), asked, count) for count in (10, 10_000)
    )
    return Case(name, ("10 rules", few), {"10,000 rules": many}, limit=1.3)


def _by_depth() -> Case:
    asked = ("filesystem", "read", "/srv/d{}/data/a/b/c")
    chain = Chain.of(_MODULE, _paths(10))
    nested = chain
    for name in ("pipeline:p", "agent:a", "tool:t"):
        nested = nested.enter(Subject.parse(name), _paths(10))
    variants = {"four subjects": _decisions(nested, asked, 10)}
    return Case("chain", ("one subject", _decisions(chain, asked, 10)), variants)


def _decisions(chain: Chain, asked: tuple[str, str, str], rules: int) -> Act:
    """Return decisions about ten targets in turn, spread over all rules."""
    policy = Policy(chain)
    resource_type, operation, target = asked
    turn = itertools.cycle(
        access_request(chain.actor, resource_type, operation, target.format(number))
        for number in range(0, rules, rules // 10)
    )
    return lambda: decide(next(turn), policy)


def _paths(count: int) -> list[Rule]:
    return [Rule.of("filesystem", "read", f"/srv/d{number}/data") for number in range(count)]


def _urls(count: int) -> list[Rule]:
    hosts = (f"https://h{number}.example.com/v1" for number in range(count))
    return [Rule.of("network", "receive", host) for host in hosts]
