"""Which addresses a name stands for, and for how long. Pure but for the clock that it is given.

A name that turns to a private, link-local or metadata address is refused there, unless its rule
names the range: otherwise whoever answers for the name could open the operator's own network.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from .endpoints import Endpoint, NameRule, Network, parse_network

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

MIN_TTL: Final = 5.0
MAX_TTL: Final = 3600.0
MAX_ADDRESSES: Final = 64  # that one name may stand for
MAX_REMEMBERED: Final = 4096  # addresses whose name is known, the latest ones
MAX_FAILURES: Final = 256  # complaints in one answer
RETRY: Final = 5.0  # seconds until a name that failed is asked for again
DNS_PORT: Final = 53
ANY_NAME: Final = "localhost"  # every answer tells the host's name servers; this one is at hand

# Ranges that a name must not turn to by itself, and what each is.
INSIDE: Final[Mapping[str, str]] = {
    "0.0.0.0/8": "this host",
    "10.0.0.0/8": "private",
    "100.64.0.0/10": "shared by carriers; also metadata services",
    "127.0.0.0/8": "loopback",
    "169.254.0.0/16": "link-local: metadata services",
    "172.16.0.0/12": "private",
    "192.0.0.0/24": "protocol assignments; also metadata services",
    "192.168.0.0/16": "private",
    "198.18.0.0/15": "benchmarks",
    "224.0.0.0/4": "multicast",
    "240.0.0.0/4": "reserved, broadcast",
    "::/96": "unspecified, loopback, IPv4-compatible",
    "64:ff9b:1::/48": "translated IPv4, private",
    "fc00::/7": "private: metadata services",
    "fe80::/10": "link-local",
    "fec0::/10": "site-local",
    "ff00::/8": "multicast",
}
# IPv6 that carries an IPv4 address, and where in it: translated, tunnelled.
_CARRIERS: Final = ((parse_network("64:ff9b::/96"), 12), (parse_network("2002::/16"), 2))
_INSIDE: Final = tuple((parse_network(text), what) for text, what in INSIDE.items())


def inside(address: Network) -> str:
    """Say what an inner address is; an empty text for one of the open network."""
    for carrier, place in _CARRIERS:
        if carrier.covers(address):
            return inside(Network(address.packed[place : place + 4], 32))
    return next((what for network, what in _INSIDE if network.covers(address)), "")


@dataclass(frozen=True, slots=True)
class Answer:
    """What a resolver said about one name: addresses with their time to live, or an error."""

    name: str
    addresses: tuple[tuple[Network, float], ...]
    error: str = ""


@dataclass(slots=True)
class _Known:
    until: dict[Network, float]  # address → when it stops counting
    refresh_at: float
    error: str = ""


class NameBook:
    """The names that sandboxes use, and what they stand for now."""

    def __init__(self, clock: Callable[[], float], refresh_seconds: float) -> None:
        self._clock = clock
        self._refresh = refresh_seconds
        self._known: dict[str, _Known] = {}
        self._reverse: dict[str, str] = {}
        self.resolvers: tuple[Network, ...] = ()

    def unknown(self, rules: Iterable[NameRule]) -> tuple[str, ...]:
        """Return the names that must be asked for before these rules can be applied."""
        rules = tuple(rules)
        names = {rule.name for rule in rules if not rule.is_wildcard}
        if rules and not names and not self.resolvers:
            names.add(ANY_NAME)  # a wildcard asks for none, and opens the servers all the same
        return tuple(sorted(name for name in names if not self._is_fresh(name)))

    def due(self, used: Iterable[NameRule]) -> tuple[str, ...]:
        """Return the names in use whose time has come, and forget those out of use."""
        names = {rule.name for rule in used if not rule.is_wildcard}
        for name in [name for name in self._known if name not in names]:
            del self._known[name]
        now = self._clock()
        return tuple(
            sorted(n for n in names if n not in self._known or self._known[n].refresh_at <= now)
        )

    def learn(self, answer: Answer) -> bool:
        """Take an answer in; tell whether what the name stands for changed."""
        now = self._clock()
        known = self._known.setdefault(answer.name, _Known({}, now))
        before = frozenset(known.until)
        known.error = answer.error
        if answer.error or not answer.addresses:
            known.error = answer.error or "no address"
            known.refresh_at = now + RETRY  # what it stood for stays: others may still use it
            return False
        self._take(known, answer, now)
        return frozenset(known.until) != before

    def addresses(self, rules: Iterable[NameRule]) -> tuple[Endpoint, ...]:
        """Return the endpoints that the rules open now; with any name, the resolvers' too."""
        rules = tuple(rules)
        found = {
            Endpoint(address, rule.port, rule.protocol)
            for rule in rules
            for address in self._allowed(rule)
        }
        if rules:
            found |= {Endpoint(address, DNS_PORT) for address in self.resolvers}
        return tuple(sorted(found, key=repr))

    def failures(self, rules: Iterable[NameRule]) -> tuple[str, ...]:
        """Say what is wrong with each name that is not fully open."""
        texts = (text for rule in rules for text in self._complaints(rule))
        return tuple(itertools.islice(texts, MAX_FAILURES))

    def name_of(self, address: str) -> str | None:
        """Return the name that an address was last an answer for."""
        return self._reverse.get(address)

    def _is_fresh(self, name: str) -> bool:
        known = self._known.get(name)
        return known is not None and known.refresh_at > self._clock() and not known.error

    def _take(self, known: _Known, answer: Answer, now: float) -> None:
        ttls = [min(max(ttl, MIN_TTL), MAX_TTL) for _, ttl in answer.addresses]
        known.refresh_at = now + min(*ttls, self._refresh)
        # An address stays for one more round after it was last seen: somebody who asked just
        # before the answer changed may still use it.
        for (address, _), ttl in zip(answer.addresses[:MAX_ADDRESSES], ttls, strict=False):
            known.until[address] = now + ttl + self._refresh
            self._reverse.pop(str(address), None)
            self._reverse[str(address)] = answer.name
        while len(self._reverse) > MAX_REMEMBERED:
            del self._reverse[next(iter(self._reverse))]
        known.until = {address: until for address, until in known.until.items() if until > now}

    def _allowed(self, rule: NameRule) -> list[Network]:
        known = self._known.get(rule.name)
        addresses = known.until if known is not None else {}
        return [address for address in addresses if _permits(rule, address)]

    def _complaints(self, rule: NameRule) -> list[str]:
        if rule.is_wildcard:
            return [f"{rule.name}: opens resolvers only; ask for each name below it by itself"]
        known = self._known.get(rule.name)
        if known is None:
            return [f"{rule.name}: not resolved"]
        refused = [address for address in known.until if not _permits(rule, address)]
        complaints = [f"{rule.name}: {known.error}"] if known.error else []
        return complaints + [f"{rule.name}: {item} is {inside(item)}" for item in refused]


def _permits(rule: NameRule, address: Network) -> bool:
    return not inside(address) or any(network.covers(address) for network in rule.within)
