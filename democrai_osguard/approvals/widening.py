"""The next wider rule that an operator may choose, and what it opens in plain words. Pure."""

from __future__ import annotations

import os
from dataclasses import dataclass

from democrai_osguard.access import ResourceType, Rule
from democrai_osguard.approvals.errors import NotWidenable
from democrai_osguard.targets.filesystem import is_broad
from democrai_osguard.targets.network import NetworkTarget, parse_network


@dataclass(frozen=True, slots=True)
class Wider:
    """A wider rule, and the word on what it opens."""

    rule: Rule
    opens: str


def widened(rule: Rule) -> Wider:
    """Return the folder of a path or the origin of a URL; raise NotWidenable where none is."""
    if rule.resource_type is ResourceType.FILESYSTEM:
        return _folder(rule)
    if rule.resource_type is ResourceType.NETWORK:
        return _origin(rule)
    raise NotWidenable("a system dependency is one name; there is nothing wider")


def _folder(rule: Rule) -> Wider:
    folder = os.path.dirname(rule.target)
    if rule.target == "/" or is_broad(folder):
        raise NotWidenable(f"the folder {folder!a} is too broad to open by widening")
    opens = f"everything in {folder} for {rule.operation}, now and later, not only this path"
    return Wider(Rule(rule.resource_type, rule.operation, folder), opens)


def _origin(rule: Rule) -> Wider:
    target = parse_network(rule.target)
    if target.scheme is None or not (target.path or target.query):
        raise NotWidenable(f"{rule.target!a} has no origin that is wider than itself")
    origin = str(NetworkTarget(target.host, target.scheme, target.port))
    opens = f"every path of {origin} for {rule.operation}, not only this URL"
    return Wider(Rule(rule.resource_type, rule.operation, origin), opens)
