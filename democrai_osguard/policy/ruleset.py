"""Rules compiled for looking up: the same time for ten rules as for ten thousand.

Targets are taken as normal. Pure: a rule set never looks at the file system.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from democrai_osguard.access import Operation, ResourceType, Rule
from democrai_osguard.policy.host_index import HostIndex
from democrai_osguard.policy.trie import Trie
from democrai_osguard.targets.network import parse_network

if TYPE_CHECKING:
    from collections.abc import Iterable


class RuleSet:
    """A set of rules, asked which of them covers a target.

    A wide set reads URL paths as the laxest server would. Denials are wide, grants never.
    """

    __slots__ = ("_dependencies", "_network", "_paths", "rules")

    def __init__(self, rules: Iterable[Rule] = (), *, wide: bool = False) -> None:
        self.rules = tuple(dict.fromkeys(rules))
        self._paths: dict[Operation, Trie[Rule]] = {}
        self._network: dict[Operation, HostIndex] = {}
        self._dependencies: dict[str, Rule] = {}
        for rule in self.rules:
            self._add(rule, wide=wide)

    def find(self, resource_type: ResourceType, operation: Operation, target: str) -> Rule | None:
        """Return a rule that covers a normal target, None where there is none."""
        if resource_type is ResourceType.FILESYSTEM:
            paths = self._paths.get(operation)
            key = target.split("/")[1:]
            # A path that climbs is not normal, and would be found beneath what it leaves.
            return None if paths is None or ".." in key else paths.first(key)
        if resource_type is ResourceType.NETWORK:
            hosts = self._network.get(operation)
            return None if hosts is None else hosts.find(parse_network(target))
        return self._dependencies.get(target)

    def covers(self, rule: Rule) -> bool:
        """Tell whether everything that the rule grants is granted here by one rule."""
        return self.find(rule.resource_type, rule.operation, rule.target) is not None

    def _add(self, rule: Rule, *, wide: bool) -> None:
        if rule.resource_type is ResourceType.FILESYSTEM:
            key = [part for part in rule.target.split("/") if part]
            node = self._paths.setdefault(rule.operation, Trie()).at(key)
            node.value = node.value or rule
        elif rule.resource_type is ResourceType.NETWORK:
            index = self._network.setdefault(rule.operation, HostIndex(wide=wide))
            index.add(parse_network(rule.target), rule)
        else:
            self._dependencies[rule.target] = rule
