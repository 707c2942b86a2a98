"""What a chain of subjects allows, computed once and kept as plain sets.

The classes of the policy take part only here and in network decisions, and only while they are
as they were loaded.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from democrai_osguard.access import Operation, ResourceType, Rule, Subject
from democrai_osguard.guard.sealed.integrity import intact
from democrai_osguard.policy.chain import Chain, Nesting
from democrai_osguard.targets.network import parse_network

Plain = tuple[str, str, str]
_POLICIES: dict[Any, SimpleNamespace] = {}
_ROOM = 256


def with_runtime(policy: SimpleNamespace, runtime: Any) -> dict[str, frozenset[str]]:
    """Return the roots of a policy and of the runtime together, put together once."""
    if policy.rooted is None or policy.rooted[0] is not runtime:
        both = {
            operation: policy.roots.get(operation, frozenset())
            | runtime.get(operation, frozenset())
            for operation in {*policy.roots, *runtime}
        }
        policy.rooted = runtime, both
    return policy.rooted[1]  # type: ignore[no-any-return] # what was stored above


def policy_of(outer: SimpleNamespace | None, spec: SimpleNamespace) -> SimpleNamespace | None:
    """Return what a chain allows as plain sets, computed once per chain and rules."""
    # Plain texts all through: a class could be made to call two subjects equal.
    key = None if outer is None else outer.key, spec.kind, spec.subject, spec.rules
    known = _POLICIES.get(key)
    if known is None:
        if len(_POLICIES) > _ROOM:
            _POLICIES.clear()
        known = _compiled(outer, spec) if intact() else None
        if known is None or not intact():
            return None
        known.key, known.rooted = key, None
        _POLICIES[key] = known
    return known


def _compiled(outer: SimpleNamespace | None, spec: SimpleNamespace) -> SimpleNamespace:
    own = None if spec.rules is None else [Rule(*rule) for rule in spec.rules]
    subject = Subject(spec.kind, spec.subject)
    chain = (Chain() if outer is None else outer.chain).enter(subject, own)
    flat = chain.flat()
    roots: dict[str, set[str]] = {}
    for rule in flat:
        if rule.resource_type == "filesystem":
            roots.setdefault(str(rule.operation), set()).add(rule.target)
    targets = [parse_network(rule.target) for rule in flat if rule.resource_type == "network"]
    web = [parse_network(r.target) for r in flat if r.operation in {"receive", "send"}]
    nesting = chain.links[-1].nesting
    return SimpleNamespace(
        chain=chain,
        chain_texts=tuple(map(str, chain.subjects)),
        allow_chain=tuple(_plain(link.rules) for link in chain.links),
        flat=tuple((str(r.resource_type), str(r.operation), r.target) for r in flat),
        roots={operation: frozenset(paths) for operation, paths in roots.items()},
        dependencies=frozenset(r.target for r in flat if r.resource_type == "system_dependency"),
        network=lambda operation, text: _grants(chain, operation, text),
        hosts=lambda name: _any_host(targets, name),
        http=lambda scheme, text: _any_endpoint(web, scheme, text),
        fresh=nesting is Nesting.FRESH,
        narrows=nesting is Nesting.NARROW,
    )


def _plain(rules: Any) -> tuple[Plain, ...]:
    if rules is None:
        return ()
    return tuple((str(r.resource_type), str(r.operation), r.target) for r in rules.rules)


def _grants(chain: Chain, operation: str, text: str) -> bool:
    return chain.find(ResourceType.NETWORK, Operation(operation), text) is not None


def _any_host(targets: Any, name: str) -> bool:
    host = parse_network(name).host
    return any(target.host.covers(host) for target in targets)


def _any_endpoint(targets: Any, scheme: str, text: str) -> bool:
    asked = parse_network(text)
    return any(
        target.scheme in {None, scheme}
        and target.port in {None, asked.port}
        and target.host.covers(asked.host)
        for target in targets
    )
