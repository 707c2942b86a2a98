"""Network rules by host, then by port, then by path: one look-up whatever their number."""

from __future__ import annotations

from typing import TYPE_CHECKING

from democrai_osguard.policy.trie import Trie
from democrai_osguard.targets.host import LOCALHOST, LOOPBACK, Host
from democrai_osguard.targets.url_path import beneath, folded

if TYPE_CHECKING:
    from collections.abc import Iterator
    from ipaddress import IPv4Network, IPv6Network

    from democrai_osguard.access import Rule
    from democrai_osguard.targets.network import NetworkTarget


class Endpoints:
    """The rules for one host, by scheme and port, then by path, then by query."""

    __slots__ = ("_by_port", "_wide")

    def __init__(self, *, wide: bool) -> None:
        self._wide = wide
        self._by_port: dict[tuple[str | None, int | None], Trie[dict[str | None, Rule]]] = {}

    def add(self, target: NetworkTarget, rule: Rule) -> None:
        """Store a rule whose target is for this host."""
        node = self._by_port.setdefault((target.scheme, target.port), Trie()).at(self._key(target))
        if node.value is None:
            node.value = {}
        node.value.setdefault(target.query, rule)

    def find(self, target: NetworkTarget) -> Rule | None:
        """Return the widest rule that covers all but the host, which the caller has matched."""
        keys = dict.fromkeys(((None, None), (None, target.port), (target.scheme, target.port)))
        for paths in filter(None, map(self._by_port.get, keys)):
            for by_query in paths.along(self._key(target)):
                rule = by_query.get(None) or by_query.get(target.query)
                if rule is not None:
                    return rule
        return None

    def _key(self, target: NetworkTarget) -> tuple[str, ...]:
        return folded(target.path) if self._wide else beneath(target.path)


class HostIndex:
    """Names by look-up, suffixes by label, addresses and ranges by prefix."""

    __slots__ = ("_names", "_prefixes", "_suffixes", "_wide")

    def __init__(self, *, wide: bool) -> None:
        self._wide = wide
        self._names: dict[str, Endpoints] = {}
        self._suffixes: Trie[Endpoints] = Trie()
        # (version, prefix length) to the leading bits of each network of that length
        self._prefixes: dict[tuple[int, int], dict[int, Endpoints]] = {}

    def add(self, target: NetworkTarget, rule: Rule) -> None:
        """Store a rule under its host."""
        self._at(target.host).add(target, rule)

    def find(self, target: NetworkTarget) -> Rule | None:
        """Return a rule that covers the target."""
        for endpoints in self._covering(target.host):
            rule = endpoints.find(target)
            if rule is not None:
                return rule
        return None

    def _at(self, host: Host) -> Endpoints:
        fresh = Endpoints(wide=self._wide)
        if host.name is not None:
            return self._names.setdefault(host.name, fresh)
        if host.network is not None:
            length = (host.network.version, host.network.prefixlen)
            return self._prefixes.setdefault(length, {}).setdefault(_bits(host.network), fresh)
        node = self._suffixes.at(_labels(str(host.suffix)))
        node.value = node.value or fresh
        return node.value

    def _covering(self, host: Host) -> Iterator[Endpoints]:
        """Yield the rules of each host that covers this one, the widest first."""
        if host.network is not None:
            yield from self._around(host.network)
            return
        if host.name == LOCALHOST:
            for loopback in LOOPBACK:
                yield from self._around(loopback)
        # A suffix covers what is below it, so the first label of a name is left out.
        labels = _labels(str(host))
        yield from self._suffixes.along(labels[:-1])
        if host.name in self._names:
            yield self._names[host.name]

    def _around(self, network: IPv4Network | IPv6Network) -> Iterator[Endpoints]:
        for version, length in sorted(self._prefixes):
            if version == network.version and length <= network.prefixlen:
                bits = _bits(network) >> (network.prefixlen - length)
                found = self._prefixes[version, length].get(bits)
                if found is not None:
                    yield found


def _labels(name: str) -> list[str]:
    return name.split(".")[::-1]


def _bits(network: IPv4Network | IPv6Network) -> int:
    return int(network.network_address) >> (network.max_prefixlen - network.prefixlen)
