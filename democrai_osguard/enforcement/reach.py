"""What a running sandbox may reach now: what it was made with, and what people decided since.

Pure. The kernel knows `connect` alone: every approved network rule opens its host and port there,
and a denial to connect closes them. A denial is read wider than a grant: of a range, the denied
addresses go with all their ports; a name that is denied on one port goes as a whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from democrai_osguard.access import Operation, ResourceType, Scope
from democrai_osguard.enforcement.egress import networks_of, policy_of
from democrai_osguard.targets.network import NetworkTarget, parse_network
from democrai_osguard_helper.protocol import Endpoint, NameRule, Network

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from democrai_osguard.access import Subject
    from democrai_osguard.approvals.records import Standing


@dataclass(frozen=True, slots=True)
class Reach:
    """Endpoints and names, as the helper takes them."""

    endpoints: tuple[Endpoint, ...]
    names: tuple[NameRule, ...]


def reach(
    asked: Reach, decisions: Iterable[Standing], subject: Subject, session: str | None
) -> Reach:
    """Lay what was decided about a subject and a session over what its sandbox was made with."""
    own = [each for each in decisions if _is_about(each, subject, session)]
    endpoints, names = policy_of(each.rule for each in own if each.scope is not Scope.DENIED)
    denied = tuple(_denied(own))
    return Reach(
        tuple(dict.fromkeys(_left((*asked.endpoints, *endpoints), denied))),
        tuple(
            rule
            for rule in dict.fromkeys((*asked.names, *names))
            if not any(_names(target, rule) for target in denied)
        ),
    )


def _is_about(decision: Standing, subject: Subject, session: str | None) -> bool:
    return (
        decision.subject == subject.identity
        and decision.rule.resource_type is ResourceType.NETWORK
        and (decision.scope is not Scope.SESSION or decision.session_key == session)
    )


def _denied(own: list[Standing]) -> Iterator[NetworkTarget]:
    """Yield what may not be connected to. A session's approval lifts the denial of the same."""
    lifted = {each.rule for each in own if each.scope is Scope.SESSION}
    for each in own:
        if each.scope is Scope.DENIED and each.rule.operation is Operation.CONNECT:
            target = parse_network(each.rule.target)
            # Below the name of a host the kernel tells nothing apart: a path is the guard's affair.
            if each.rule not in lifted and not target.path and target.query is None:
                yield target


def _left(endpoints: tuple[Endpoint, ...], denied: tuple[NetworkTarget, ...]) -> Iterator[Endpoint]:
    """Yield what is left of endpoints when the denied addresses are taken out of them."""
    closed = [(network, target.port) for target in denied for network in networks_of(target.host)]
    for endpoint in endpoints:
        parts = [endpoint.network]
        for network, port in closed:
            if _may_meet(port, endpoint.port):
                parts = [rest for part in parts for rest in _without(part, network)]
        for part in parts:
            yield endpoint._replace(network=part)


def _without(part: Network, gone: Network) -> Iterator[Network]:
    """Yield a range without another, halving it until only that one is left out."""
    if gone.covers(part):
        return
    if not part.covers(gone):
        yield part
        return
    for half in _halves(part):
        yield from _without(half, gone)


def _halves(network: Network) -> tuple[Network, Network]:
    packed, prefix = network
    first = int.from_bytes(packed, "big")
    middle = first | 1 << (8 * len(packed) - prefix - 1)
    return Network(packed, prefix + 1), Network(middle.to_bytes(len(packed), "big"), prefix + 1)


def _names(denied: NetworkTarget, rule: NameRule) -> bool:
    return _may_meet(denied.port, rule.port) and denied.host.covers(parse_network(rule.name).host)


def _may_meet(one: int | None, other: int | None) -> bool:
    return one is None or other is None or one == other
