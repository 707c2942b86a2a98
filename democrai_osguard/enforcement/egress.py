"""Holds this very process to network rules, in the kernel, by way of the helper."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING

from democrai_osguard.access import ResourceType, Rule, Subject
from democrai_osguard.enforcement.companion import start_companion
from democrai_osguard.errors import OsGuardError
from democrai_osguard.targets.host import LOCALHOST, LOOPBACK, Host
from democrai_osguard.targets.network import parse_network
from democrai_osguard_helper import protocol
from democrai_osguard_helper.client import Client, HelperRefused, HelperUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from democrai_osguard.enforcement.companion import Companion


class NotConfined(OsGuardError, RuntimeError):
    """The helper did not hold this process; nothing has changed."""

    code = "egress_not_enforced"


@dataclass(frozen=True, slots=True)
class Confinement:
    """What holds this process from now on, and what was there before."""

    sandbox: str
    layers: tuple[str, ...]
    missing: tuple[str, ...]
    open_sockets: int  # made before: they stay as they are, and nothing holds them


def confine_this_process(
    rules: Iterable[Rule],
    subject: Subject,
    session_key: str | None = None,
    *,
    approvals: str | None = None,
) -> Confinement:
    """Let the helper hold this process and all that it starts to these network rules.

    Every network rule opens its host and port, whatever its operation. Sockets that are open
    already are counted and not held: call this before the first one. With the URL of a store of
    `approvals`, a process beside this one asks people about what was refused, and brings what they
    decide to the helper; this process itself is inside, and nobody inside may. Raises NotConfined.
    """
    companion = None if approvals is None else _companion(approvals)
    try:
        return _confine(rules, subject, session_key)
    except NotConfined:
        if companion is not None:
            companion.end()
        raise


def _companion(store: str) -> Companion:
    try:
        return start_companion(store)
    except RuntimeError as error:
        raise NotConfined(f"{NotConfined.code}: {error}") from error


def _confine(rules: Iterable[Rule], subject: Subject, session_key: str | None) -> Confinement:
    endpoints, names = policy_of(rules)
    who = protocol.Subject(str(subject.type), subject.name)
    before = _open_sockets()
    request = protocol.Confine(who, session_key, endpoints, names, "partial")
    try:
        with Client() as client:
            applied = client.confine(request)
    except (HelperUnavailable, HelperRefused, protocol.ProtocolViolation) as error:
        raise NotConfined(f"{NotConfined.code}: {error}") from error
    return Confinement(applied.sandbox, applied.layers, applied.missing, before)


def policy_of(
    rules: Iterable[Rule],
) -> tuple[tuple[protocol.Endpoint, ...], tuple[protocol.NameRule, ...]]:
    """Return the network rules as the helper takes them: addresses, and names to look up. Pure."""
    endpoints: dict[protocol.Endpoint, None] = {}
    names: dict[protocol.NameRule, None] = {}
    for rule in rules:
        if rule.resource_type is not ResourceType.NETWORK:
            continue
        target = parse_network(rule.target)
        networks = networks_of(target.host)
        for network in networks:
            endpoints[protocol.Endpoint(network, target.port)] = None
        if not networks:
            names[protocol.NameRule(str(target.host), target.port)] = None
    return tuple(endpoints), tuple(names)


def networks_of(host: Host) -> tuple[protocol.Network, ...]:
    """Return the addresses that a host is; none for a name that must be looked up. Pure."""
    found = LOOPBACK if host.name == LOCALHOST else (host.network,) if host.network else ()
    return tuple(protocol.Network(each.network_address.packed, each.prefixlen) for each in found)


def _open_sockets() -> int:
    count = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            count += stat.S_ISSOCK(os.fstat(int(name)).st_mode)
        except OSError:
            continue  # the listing's own descriptor
    return count
