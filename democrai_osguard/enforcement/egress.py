"""Holds this very process to network rules, in the kernel, by way of the helper."""

from __future__ import annotations

import logging
import os
import socket
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from democrai_osguard.access import ResourceType, Rule, Subject
from democrai_osguard.enforcement.companion import start_companion
from democrai_osguard.errors import OsGuardError, counted
from democrai_osguard.settings import OsSettings
from democrai_osguard.targets.host import LOCALHOST, LOOPBACK, Host
from democrai_osguard.targets.network import parse_network
from democrai_osguard_helper import protocol
from democrai_osguard_helper.client import Client, HelperRefused, HelperUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from democrai_osguard.enforcement.companion import Companion


_log = logging.getLogger("democrai_osguard.enforcement")
_NAMED = 5  # sockets in one line


class NotConfined(OsGuardError, RuntimeError):
    """The helper did not hold this process; nothing has changed."""

    code = "egress_not_enforced"


@dataclass(frozen=True, slots=True)
class Confinement:
    """What holds this process from now on, and what was there before."""

    sandbox: str
    layers: tuple[str, ...]
    missing: tuple[str, ...]
    open_sockets: int  # of the network, made before: they stay as they are, nothing holds them
    failed_names: tuple[str, ...] = ()  # which names stay closed, and why


def confine_this_process(
    rules: Iterable[Rule],
    subject: Subject,
    session_key: str | None = None,
    *,
    approvals: str | None = None,
    settings: OsSettings | None = None,
) -> Confinement:
    """Let the helper hold this process and all that it starts to these network rules.

    Every network rule opens its host and port, whatever its operation. Sockets that are open
    already are not held, which a warning says: call this before the first one. Where `full` is
    required they refuse it. With the URL of a store of
    `approvals`, a process beside this one asks people about what was refused, and brings what they
    decide to the helper; this process itself is inside, and nobody inside may. The settings say
    where the helper is, what it must hold and how old its names may get. Raises NotConfined.
    """
    chosen = settings or OsSettings()
    before = open_sockets()
    if before and chosen.require == "full":
        raise NotConfined(f"{NotConfined.code}: {_left_open(before)}")
    companion = None if approvals is None else _companion(approvals, chosen.helper_socket)
    try:
        held = _confine(rules, subject, session_key, chosen)
    except NotConfined:
        if companion is not None:
            companion.end()
        raise
    if before:
        _log.warning("%s", _left_open(before))
    return replace(held, open_sockets=len(before))


def _companion(store: str, helper: str | None) -> Companion:
    try:
        return start_companion(store, helper)
    except RuntimeError as error:
        raise NotConfined(f"{NotConfined.code}: {error}") from error


def _confine(
    rules: Iterable[Rule], subject: Subject, session_key: str | None, settings: OsSettings
) -> Confinement:
    endpoints, names = policy_of(rules)
    who = protocol.Subject(str(subject.type), subject.name)
    # Being held by nothing at all is not being held: one layer is the least to ask for.
    least = "full" if settings.require == "full" else "partial"
    refresh = refresh_of(settings)
    request = protocol.Confine(who, session_key, endpoints, names, least, refresh)
    try:
        with Client(settings.helper_socket) as client:
            applied = client.confine(request)
    except (HelperUnavailable, HelperRefused, protocol.ProtocolViolation) as error:
        raise NotConfined(f"{NotConfined.code}: {error}") from error
    for failed in applied.failed_names:
        _log.warning("a name stays closed: %s", failed)
    return Confinement(applied.sandbox, applied.layers, applied.missing, 0, applied.failed_names)


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


def refresh_of(settings: OsSettings) -> int:
    """Return how old names may get, within what the helper takes. Pure."""
    return int(min(max(settings.refresh_seconds, protocol.MIN_REFRESH), protocol.MAX_REFRESH))


def open_sockets() -> tuple[str, ...]:
    """Say of each network socket that this process has open where it leads."""
    found = (_words_of(int(name)) for name in os.listdir("/proc/self/fd"))
    return tuple(words for words in found if words)


def _words_of(descriptor: int) -> str:
    try:
        found = socket.socket(fileno=descriptor)
    except OSError:
        return ""  # no socket, or the listing's own descriptor
    try:
        return _ends(found) if found.family in {socket.AF_INET, socket.AF_INET6} else ""
    finally:
        found.detach()  # it is somebody else's


def _ends(open_socket: socket.socket) -> str:
    try:
        return f"connected to {_place(open_socket.getpeername())}"
    except OSError:
        return f"at {_place(open_socket.getsockname())}"


def _place(address: tuple[str, int]) -> str:
    host, port, *_ = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _left_open(sockets: tuple[str, ...]) -> str:
    """Say plainly what is not held. Pure."""
    named = ", ".join(sockets[:_NAMED]) + (", …" if len(sockets) > _NAMED else "")
    count = counted(len(sockets), "network socket")
    return f"open before this process was held, and held by nothing: {count} ({named})"
