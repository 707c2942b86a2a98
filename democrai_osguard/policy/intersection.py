"""What two lists of rules both grant, as one list: narrowing for readers that know no chain."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from democrai_osguard.access import Operation, ResourceType, Rule
from democrai_osguard.policy.ruleset import RuleSet
from democrai_osguard.targets.network import NetworkTarget, parse_network

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


def intersect(ours: Iterable[Rule], theirs: Iterable[Rule]) -> tuple[Rule, ...]:
    """Return rules that cover exactly what both lists cover."""
    left, right = RuleSet(ours), RuleSet(theirs)
    mine = (rule for rule in left.rules if right.covers(rule))
    yours = (rule for rule in right.rules if left.covers(rule))
    return smallest(chain(mine, yours, _network_meets(left.rules, right.rules)))


def smallest(rules: Iterable[Rule]) -> tuple[Rule, ...]:
    """Return the rules without those that another one of them covers."""
    every = RuleSet(rules)
    return tuple(
        rule
        for rule in every.rules
        if every.find(rule.resource_type, rule.operation, rule.target) == rule
    )


def _network_meets(ours: Iterable[Rule], theirs: Iterable[Rule]) -> Iterator[Rule]:
    """Yield what pairs of network rules share, also where neither covers the other."""
    for operation, targets in _network_targets(ours).items():
        partners = _Partners(_network_targets(theirs).get(operation, ()))
        for target in targets:
            for partner in partners.of(target):
                shared = target.meet(partner)
                if shared is not None:
                    yield Rule(ResourceType.NETWORK, operation, str(shared))


def _network_targets(rules: Iterable[Rule]) -> dict[Operation, list[NetworkTarget]]:
    targets: dict[Operation, list[NetworkTarget]] = {}
    for rule in rules:
        if rule.resource_type is ResourceType.NETWORK:
            targets.setdefault(rule.operation, []).append(parse_network(rule.target))
    return targets


class _Partners:
    """Targets by name: a name meets only itself or a range, so other names are not tried."""

    def __init__(self, targets: Iterable[NetworkTarget]) -> None:
        self._all = tuple(targets)
        self._by_name: dict[str | None, list[NetworkTarget]] = {}
        for target in self._all:
            self._by_name.setdefault(target.host.name, []).append(target)

    def of(self, target: NetworkTarget) -> Iterable[NetworkTarget]:
        name = target.host.name
        if name is None:
            return self._all
        return chain(self._by_name.get(name, ()), self._by_name.get(None, ()))
