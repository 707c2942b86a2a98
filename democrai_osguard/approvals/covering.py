"""Where decisions about a target may be found: a few keys to look up, however many there are.

A key narrows the search and decides nothing: what is found under it is compared field by field,
by the one matcher that manifests use too. Keys read URL paths as the laxest server would, as
denials do; what grants cover is always among what they find. Pure.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from democrai_osguard.access import ResourceType
from democrai_osguard.targets.host import LOCALHOST, LOOPBACK, Host
from democrai_osguard.targets.network import NetworkTarget, parse_network
from democrai_osguard.targets.url_path import folded

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from ipaddress import IPv4Network, IPv6Network

    from democrai_osguard.access import Operation, Rule, Subject

_STEP = 8  # ranges are filed under the next shorter prefix that is a multiple of this
_WILDCARD_LABELS = 2
_KEY_BYTES = 8  # an integer of the database; two places that share one are told apart later


def rule_key(subject: Subject, rule: Rule) -> int:
    """Return the key that a decision about this rule is filed under."""
    holder = _holder(subject, rule.resource_type, rule.operation)
    if rule.resource_type is ResourceType.FILESYSTEM:
        return _along(holder, _parts(rule.target))[-1]
    if rule.resource_type is ResourceType.NETWORK:
        target = parse_network(rule.target)
        place = holder + _endpoint(_home(target.host), target)
        return _along(place, folded(target.path), (target.query,))[-1]
    return _along(holder, (rule.target,))[-1]


def request_keys(
    subject: Subject, resource_type: ResourceType, operation: Operation, target: str
) -> list[int]:
    """Return every key under which a decision that covers a normal target can be filed."""
    holder = _holder(subject, resource_type, operation)
    if resource_type is ResourceType.FILESYSTEM:
        return _along(holder, _parts(target))
    if resource_type is ResourceType.NETWORK:
        return list(dict.fromkeys(_network_keys(holder, parse_network(target))))
    return _along(holder, (target,))[1:]


def encoded(text: str) -> bytes:
    """Return a target as bytes: those that are no text survive."""
    return text.encode("utf-8", "surrogateescape")


def digest(*parts: bytes) -> bytes:
    """Return a short name for a row of byte strings."""
    state = hashlib.blake2b(digest_size=16)
    for part in parts:
        state.update(b"%d:" % len(part) + part)
    return state.digest()


def _holder(subject: Subject, resource_type: ResourceType, operation: Operation) -> bytes:
    return f"{resource_type} {operation} {subject.type} {subject.name}\n".encode()


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part]


def _along(
    start: bytes, parts: Sequence[str], queries: Iterable[str | None] = (None,)
) -> list[int]:
    """Return a key for each place on the way to the last part, the start included."""
    state = hashlib.blake2b(start, digest_size=_KEY_BYTES)
    keys: list[int] = []
    queries = tuple(queries)
    for part in (None, *parts):
        if part is not None:
            state.update(b"/" + part.encode("utf-8", "surrogateescape"))
        place = state.digest()
        keys += (_number(place if query is None else _asked(place, query)) for query in queries)
    return keys


def _asked(place: bytes, query: str) -> bytes:
    return digest(place, encoded(query))[:_KEY_BYTES]


def _number(key: bytes) -> int:
    return int.from_bytes(key, "big", signed=True)


def _network_keys(holder: bytes, target: NetworkTarget) -> Iterator[int]:
    bare = NetworkTarget(target.host)
    for home in _around(target.host):  # ranges take neither scheme nor port
        yield from _along(holder + _endpoint(home, bare), ())
    queries = dict.fromkeys((None, target.query))
    path = folded(target.path)
    for home in _homes(target.host):
        yield from _along(holder + _endpoint(home, bare), ())
        yield from _along(
            holder + _endpoint(home, NetworkTarget(target.host, port=target.port)), ()
        )
        yield from _along(holder + _endpoint(home, target), path, queries)


def _endpoint(home: str, target: NetworkTarget) -> bytes:
    return f"{home} {target.scheme} {target.port}".encode()


def _homes(host: Host) -> Iterator[str]:
    """Yield the names under which rules that cover the host are filed, ranges left out."""
    if host.name is not None:
        yield _home(host)
        yield from _suffixes(host.name.split(".")[1:])
    elif host.suffix is not None:
        yield from _suffixes(host.suffix.split("."))
    elif not host.is_range:
        yield _home(host)


def _suffixes(labels: list[str]) -> Iterator[str]:
    for start in range(len(labels) - _WILDCARD_LABELS + 1):
        yield f"*.{'.'.join(labels[start:])}"


def _around(host: Host) -> Iterator[str]:
    networks = LOOPBACK if host.name == LOCALHOST else (host.network,)
    for network in networks:
        if network is not None:
            for length in range(0, min(network.prefixlen, network.max_prefixlen - 1) + 1, _STEP):
                yield _range(network, length)


def _home(host: Host) -> str:
    if host.network is not None and host.is_range:
        return _range(host.network, host.network.prefixlen // _STEP * _STEP)
    return str(host)


def _range(network: IPv4Network | IPv6Network, length: int) -> str:
    bits = int(network.network_address) >> (network.max_prefixlen - length)
    return f"{network.version}/{length}/{bits:x}"
