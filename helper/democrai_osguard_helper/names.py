"""Which addresses names stand for, and what that opens. Pure but for the clock that it is given.

A name that turns to a private, link-local or metadata address is refused there, unless its rule
names the range: otherwise whoever answers for the name could open the operator's own network.
"""

from __future__ import annotations

import functools
from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

from . import crowd
from .answers import MAX_KEPT, MAX_TTL, Answer, Known
from .endpoints import PROTOCOLS, Endpoint, NameRule, Network, parse_network
from .inner_addresses import inside
from .records import MAX_POLICY, Cover

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from .records import Record

DNS_PORT: Final = 53
ANY_NAME: Final = "localhost"  # every answer tells the host's name servers; this one is at hand
_STAR: Final = "opens resolvers only; ask for each name below it by itself"


class Complaint(NamedTuple):
    """What is wrong with a name: it is said again when it is of another kind."""

    kind: tuple[str, bool]  # what the resolver said, and whether addresses are refused
    text: str


class Use(NamedTuple):
    """A rule of a sandbox, how old its name may get, and whose sandbox it is."""

    rule: NameRule
    refresh: int | None
    account: int


def asked_name(rule: NameRule) -> str:
    """Return the name to ask for so that a rule is up to date: a star itself has no addresses."""
    return ANY_NAME if rule.is_wildcard else rule.name


class NameBook:
    """The names that sandboxes use, and what they stand for now."""

    def __init__(self, clock: Callable[[], float], refresh_seconds: float) -> None:
        self._clock = clock
        self._refresh = refresh_seconds
        self._known: dict[str, Known] = {}
        self._awaited = Counter[tuple[str, int]]()  # names that calls wait for, and whose calls
        self._users: dict[str, set[int]] = {}  # name → accounts
        self._taken = Counter[int]()  # addresses of the names that each account uses
        self._count = 0  # of all addresses
        self.resolvers: tuple[Network, ...] = ()

    def unknown(self, rules: Iterable[NameRule], refresh: int | None = None) -> tuple[str, ...]:
        """Return the names that must be asked for before these rules can be applied."""
        rules = tuple(rules)
        names = {rule.name for rule in rules if not rule.is_wildcard}
        if rules and not names and not self.resolvers:
            names.add(ANY_NAME)  # a wildcard asks for none, and opens the servers all the same
        age = refresh or self._refresh
        return tuple(sorted(name for name in names if not self._is_fresh(name, age)))

    def expect(self, account: int, rules: Iterable[NameRule]) -> None:
        """Keep what these names stand for until `settle`: a call waits for some of them."""
        for name in set(map(asked_name, rules)):
            self._awaited[name, account] += 1
            self._users.setdefault(name, set()).add(account)

    def settle(self, account: int, rules: Iterable[NameRule]) -> None:
        """Let go of what a call waited for."""
        self._awaited -= Counter((name, account) for name in set(map(asked_name, rules)))

    def due(self, used: Iterable[Use]) -> tuple[str, ...]:
        """Return the names in use whose time has come, and forget those out of use.

        Of several ages that sandboxes want for a name the shortest counts.
        """
        ages, users = dict[str, float](), dict[str, set[int]]()
        for rule, refresh, account in used:
            name = asked_name(rule)
            ages[name] = min(ages.get(name, MAX_TTL), refresh or self._refresh)
            users.setdefault(name, set()).add(account)
        for name, account in self._awaited:
            users.setdefault(name, set()).add(account)
        self._keep_for(users)
        return tuple(sorted(name for name, age in ages.items() if self._is_due(name, age)))

    def learn(self, answer: Answer) -> bool:
        """Take an answer in; tell whether there is something else to open or to say."""
        now = self._clock()
        known = self._known.setdefault(answer.name, Known(now))
        if answer.addresses and not self._has_room(answer.name, MAX_KEPT - len(known)):
            answer = Answer(answer.name, (), "too many addresses are known already")
        before = len(known)
        changed = known.take(answer, now, self._refresh)
        self._count += len(known) - before
        for account in self._users.get(answer.name, ()):
            self._taken[account] += len(known) - before
        return changed

    def addresses(self, rules: Iterable[NameRule]) -> tuple[Endpoint, ...]:
        """Return the endpoints that the rules open now; with any name, the resolvers' too."""
        rules = tuple(rules)
        found = {Endpoint(address, DNS_PORT) for address in self.resolvers if rules}
        for rule in rules:
            found.update(Endpoint(each, rule.port, rule.protocol) for each in self._allowed(rule))
            if len(found) > MAX_POLICY:
                break  # more than any sandbox may have: it is refused, however much more it is
        return tuple(sorted(found, key=_order))

    def standing(self, record: Record, rules: Sequence[NameRule]) -> tuple[Endpoint, ...]:
        """Return what these rules open for a sandbox now, and what those that fail opened before.

        After a restart a name that fails has no known address, and what it opened stays. Which
        name an address was opened by is not written down, so a rule that goes closes its port
        for all of these.
        """
        found = self.addresses(rules)
        gone = {(rule.port, rule.protocol) for rule in set(record.names) - set(rules)}
        silent = [rule for rule in rules if rule in record.names and self._is_silent(rule)]
        waiting = [rule for rule in silent if (rule.port, rule.protocol) not in gone]
        kept = {
            old
            for old in record.addresses
            if any(
                (rule.port, rule.protocol) == (old.port, old.protocol)
                and (_names(rule, old.network) or not inside(old.network))
                for rule in waiting
            )
        }
        if rules and not self.resolvers:
            kept |= {old for old in record.addresses if old[1:] == (DNS_PORT, None)}
        return (*found, *sorted(kept - set(found), key=_order))

    def complaints(
        self, rules: Iterable[NameRule], beside: Sequence[Endpoint]
    ) -> dict[str, Complaint]:
        """Say what is wrong with each name that could be open: of those below a star nobody knows.

        One thing for each name, however many addresses are refused. What the policy opens beside
        them may open an inner address that a name turns to.
        """
        found, cover = dict[str, Complaint](), functools.cache(lambda: Cover(beside))
        for rule in rules:
            wrong = None if rule.is_wildcard or rule.name in found else self._wrong(rule, cover)
            if wrong is not None:
                found[rule.name] = wrong
        return found

    def failures(self, rules: Sequence[NameRule], beside: Sequence[Endpoint]) -> tuple[str, ...]:
        """Say what is wrong with each name that is not fully open, those below a star included."""
        wrong = {name: each.text for name, each in self.complaints(rules, beside).items()}
        stars = {rule.name: f"{rule.name}: {_STAR}" for rule in rules if rule.is_wildcard}
        texts = wrong | stars
        return tuple(texts[name] for name in dict.fromkeys(r.name for r in rules) if name in texts)

    def name_of(self, rules: Iterable[NameRule], address: str) -> str | None:
        """Return which name of these rules stands for an address."""
        place = parse_network(address)
        known = ((rule.name, self._known.get(rule.name)) for rule in rules)
        return next((name for name, each in known if each is not None and place in each), None)

    def _keep_for(self, users: dict[str, set[int]]) -> None:
        self._users = users
        self._known = {name: known for name, known in self._known.items() if name in users}
        self._taken = Counter()
        self._count = sum(map(len, self._known.values()))
        for name, known in self._known.items():
            for account in users[name]:
                self._taken[account] += len(known)

    def _has_room(self, name: str, more: int) -> bool:
        """Tell whether one of those who use a name may have more; nobody's names harm others'."""
        mine = min((self._taken[account] for account in self._users.get(name, ())), default=0)
        return crowd.may_be_known(more, mine, self._count)

    def _is_silent(self, rule: NameRule) -> bool:
        """Tell whether nobody has said yet what a name stands for."""
        known = self._known.get(rule.name)
        return not rule.is_wildcard and not known

    def _is_fresh(self, name: str, age: float) -> bool:
        known = self._known.get(name)
        return known is not None and not known.failed and not self._is_due(name, age)

    def _is_due(self, name: str, age: float) -> bool:
        known = self._known.get(name)
        return known is None or known.is_due(self._clock(), age)

    def _allowed(self, rule: NameRule) -> list[Network]:
        known = self._known.get(rule.name)
        if known is None:
            return []
        return [*known.outer, *(each for each in known.inner if _names(rule, each))]

    def _wrong(self, rule: NameRule, cover: Callable[[], Cover]) -> Complaint | None:
        known = self._known.get(rule.name)
        if known is None or known.failed:
            why = "not resolved" if known is None else known.error
            return Complaint((why, False), f"{rule.name}: {why}")
        refused = [
            each
            for each in known.inner
            if not _names(rule, each) and not _is_open(cover(), each, rule)
        ]
        more = f", and {len(refused) - 1} more are inside" if len(refused) > 1 else ""
        inner = f"{refused[0]} is {inside(refused[0])}{more}" if refused else ""
        text = "; ".join(filter(None, (known.error, inner)))
        return Complaint((known.error, bool(refused)), f"{rule.name}: {text}") if text else None


def _names(rule: NameRule, address: Network) -> bool:
    """Tell whether a rule names a range that an inner address is in."""
    return any(network.covers(address) for network in rule.within)


def _is_open(cover: Cover, address: Network, rule: NameRule) -> bool:
    """Tell whether other rules open the address on the port of this one."""
    protocols = (rule.protocol,) if rule.protocol else PROTOCOLS
    return all(cover.covers(address.packed, rule.port, each) for each in protocols)


def _order(endpoint: Endpoint) -> tuple[Network, int, str]:
    network, port, protocol = endpoint
    return network, -1 if port is None else port, protocol or ""
