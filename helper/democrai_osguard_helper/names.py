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
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from .records import Record

MIN_TTL: Final = 5.0
MAX_TTL: Final = 3600.0
MAX_ADDRESSES: Final = 512  # in one answer: as many as the resolver reads, of both families
MAX_KEPT: Final = 1024  # that one name may stand for, with those that it stood for a moment ago
MAX_KNOWN: Final = 262_144  # addresses of all names together
MAX_REMEMBERED: Final = 4096  # addresses whose name is known, the latest ones
MAX_FAILURES: Final = 256  # complaints in one answer
RETRY: Final = 5.0  # seconds until a name that failed is asked for again; each time twice as long
MAX_RETRY: Final = 40.0
DNS_PORT: Final = 53
ANY_NAME: Final = "localhost"  # every answer tells the host's name servers; this one is at hand

# Ranges that a name must not turn to by itself, and what each is.
INSIDE: Final[Mapping[str, str]] = {
    "0.0.0.0/8": "this host",
    "10.0.0.0/8": "private",
    "100.64.0.0/10": "shared by carriers; also metadata services",
    "127.0.0.0/8": "loopback",
    "168.63.129.16/32": "services of the machine's own host, metadata among them",
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


def asked_name(rule: NameRule) -> str:
    """Return the name to ask for so that a rule is up to date: a star itself has no addresses."""
    return ANY_NAME if rule.is_wildcard else rule.name


def inside(address: Network) -> str:
    """Say what an inner address is; an empty text for one of the open network."""
    for carrier, place in _CARRIERS:
        if carrier.covers(address):
            return inside(Network(address.packed[place : place + 4], 32))
    return next((what for network, what in _INSIDE if network.covers(address)), "")


@dataclass(frozen=True, slots=True)
class Answer:
    """What a resolver said about one name: addresses with their time to live, or an error.

    Both together: one of the two families could not be asked for.
    """

    name: str
    addresses: tuple[tuple[Network, float], ...]
    error: str = ""


@dataclass(slots=True)
class _Known:
    until: dict[Network, float]  # address → when it stops counting
    heard_at: float
    lasts: float = 0.0  # seconds, by the shortest time to live
    error: str = ""
    failed: bool = False  # wholly, when it was last asked for

    def is_due(self, now: float, refresh: float) -> bool:
        """Tell whether it should be asked for again by who wants it no older than this."""
        return now >= self.heard_at + min(self.lasts, refresh)


class NameBook:
    """The names that sandboxes use, and what they stand for now."""

    def __init__(self, clock: Callable[[], float], refresh_seconds: float) -> None:
        self._clock = clock
        self._refresh = refresh_seconds
        self._known: dict[str, _Known] = {}
        self._count = 0  # of addresses that are known
        self._reverse: dict[str, str] = {}
        self.resolvers: tuple[Network, ...] = ()

    def unknown(self, rules: Iterable[NameRule], refresh: int | None = None) -> tuple[str, ...]:
        """Return the names that must be asked for before these rules can be applied."""
        rules = tuple(rules)
        names = {rule.name for rule in rules if not rule.is_wildcard}
        if rules and not names and not self.resolvers:
            names.add(ANY_NAME)  # a wildcard asks for none, and opens the servers all the same
        age = refresh or self._refresh
        return tuple(sorted(name for name in names if not self._is_fresh(name, age)))

    def due(self, used: Iterable[tuple[NameRule, int | None]]) -> tuple[str, ...]:
        """Return the names in use whose time has come, and forget those out of use.

        Each rule comes with the age that its sandbox wants; of several the shortest counts.
        """
        ages: dict[str, float] = {}
        for rule, refresh in used:
            name = asked_name(rule)
            ages[name] = min(ages.get(name, MAX_TTL), refresh or self._refresh)
        for name in [name for name in self._known if name not in ages]:
            self._count -= len(self._known.pop(name).until)
        return tuple(sorted(name for name, age in ages.items() if self._is_due(name, age)))

    def learn(self, answer: Answer) -> bool:
        """Take an answer in; tell whether what the name stands for changed."""
        now = self._clock()
        known = self._known.setdefault(answer.name, _Known({}, now))
        before = frozenset(known.until)
        if self._is_too_much(answer):
            answer = Answer(answer.name, (), "too many addresses are known already")
        pause = min(known.lasts * 2, MAX_RETRY) if known.error else RETRY
        known.error, known.failed = answer.error, not answer.addresses
        if known.failed:
            known.error = answer.error or "no address"
            # What it stood for stays: others may still use it.
            known.heard_at, known.lasts = now, pause
            return False
        self._take(known, answer, now)
        self._count += len(known.until) - len(before)
        if answer.error:
            known.lasts = min(known.lasts, pause)
        return frozenset(known.until) != before

    def addresses(
        self, rules: Iterable[NameRule], beside: Sequence[Endpoint] = ()
    ) -> tuple[Endpoint, ...]:
        """Return the endpoints that the rules open now; with any name, the resolvers' too.

        What the policy opens beside them may name inner ranges that the names can turn to.
        """
        rules = tuple(rules)
        found = {
            Endpoint(address, rule.port, rule.protocol)
            for rule in rules
            for address in self._allowed(rule, beside)
        }
        if rules:
            found |= {Endpoint(address, DNS_PORT) for address in self.resolvers}
        return tuple(sorted(found, key=repr))

    def standing(
        self, record: Record, rules: Sequence[NameRule], beside: Sequence[Endpoint]
    ) -> tuple[Endpoint, ...]:
        """Return what these rules open for a sandbox now, and what those that fail opened before.

        After a restart a name that fails has no known address, and what it opened stays. Which
        name an address was opened by is not written down, so a rule that goes closes its port
        for all of these.
        """
        found = self.addresses(rules, beside)
        gone = {(rule.port, rule.protocol) for rule in set(record.names) - set(rules)}
        silent = [rule for rule in rules if rule in record.names and self._is_silent(rule)]
        kept = {
            old
            for old in record.addresses
            for rule in silent
            if (old.port, old.protocol) == (rule.port, rule.protocol)
            and (rule.port, rule.protocol) not in gone
            and _permits(rule, old.network, beside)
        }
        if rules and not self.resolvers:
            kept |= {old for old in record.addresses if old[1:] == (DNS_PORT, None)}
        return (*found, *sorted(kept - set(found), key=repr))

    def failures(
        self, rules: Iterable[NameRule], beside: Sequence[Endpoint] = ()
    ) -> tuple[str, ...]:
        """Say what is wrong with each name that is not fully open."""
        texts = (text for rule in rules for text in self._complaints(rule, beside))
        return tuple(itertools.islice(texts, MAX_FAILURES))

    def troubles(
        self, rules: Iterable[NameRule], beside: Sequence[Endpoint] = ()
    ) -> tuple[str, ...]:
        """Say what is wrong with names that could be open: of those below a star nobody knows."""
        return self.failures((rule for rule in rules if not rule.is_wildcard), beside)

    def name_of(self, address: str) -> str | None:
        """Return the name that an address was last an answer for."""
        return self._reverse.get(address)

    def _is_too_much(self, answer: Answer) -> bool:
        own = len(self._known[answer.name].until)
        return bool(answer.addresses) and self._count - own + MAX_KEPT > MAX_KNOWN

    def _is_silent(self, rule: NameRule) -> bool:
        """Tell whether nobody has said yet what a name stands for."""
        known = self._known.get(rule.name)
        return not rule.is_wildcard and (known is None or not known.until)

    def _is_fresh(self, name: str, age: float) -> bool:
        known = self._known.get(name)
        return known is not None and not known.failed and not self._is_due(name, age)

    def _is_due(self, name: str, age: float) -> bool:
        known = self._known.get(name)
        return known is None or known.is_due(self._clock(), age)

    def _take(self, known: _Known, answer: Answer, now: float) -> None:
        ttls = [min(max(ttl, MIN_TTL), MAX_TTL) for _, ttl in answer.addresses]
        known.heard_at, known.lasts = now, min(ttls)
        # An address stays for one more round after it was last seen: somebody who asked just
        # before the answer changed may still use it.
        for (address, _), ttl in zip(answer.addresses[:MAX_ADDRESSES], ttls, strict=False):
            known.until.pop(address, None)
            known.until[address] = now + ttl + self._refresh
            self._reverse.pop(str(address), None)
            self._reverse[str(address)] = answer.name
        while len(self._reverse) > MAX_REMEMBERED:
            del self._reverse[next(iter(self._reverse))]
        heard = {address.version for address, _ in answer.addresses} if answer.error else {4, 6}
        kept = [
            (address, until)
            for address, until in known.until.items()
            if until > now or address.version not in heard  # nobody said that it is none any more
        ]
        # Whoever answers with others each time does not open, or make us keep, ever more.
        known.until = dict(kept[-MAX_KEPT:])

    def _allowed(self, rule: NameRule, beside: Sequence[Endpoint]) -> list[Network]:
        known = self._known.get(rule.name)
        addresses = known.until if known is not None else {}
        return [address for address in addresses if _permits(rule, address, beside)]

    def _complaints(self, rule: NameRule, beside: Sequence[Endpoint]) -> list[str]:
        if rule.is_wildcard:
            return [f"{rule.name}: opens resolvers only; ask for each name below it by itself"]
        known = self._known.get(rule.name)
        if known is None:
            return [f"{rule.name}: not resolved"]
        refused = [address for address in known.until if not _permits(rule, address, beside)]
        complaints = [f"{rule.name}: {known.error}"] if known.error else []
        return complaints + [f"{rule.name}: {item} is {inside(item)}" for item in refused]


def _permits(rule: NameRule, address: Network, beside: Sequence[Endpoint]) -> bool:
    """Tell whether a name may stand for an address: an inner one must be in a range that is named.

    A range that is more than an inner one, as that of every address, names none.
    """
    return (
        not inside(address)
        or any(network.covers(address) for network in rule.within)
        or any(each.network.covers(address) and inside(each.network) for each in beside)
    )
