"""What resolvers said about one name, and for how long it counts. Pure.

Inner addresses are kept apart, and few of them: whoever answers for a name may not fill the book
with addresses that no rule opens.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from .inner_addresses import inside

if TYPE_CHECKING:
    from collections.abc import Container

    from .endpoints import Network

MIN_TTL: Final = 5.0
MAX_TTL: Final = 3600.0
MAX_ADDRESSES: Final = 512  # in one answer: as many as the resolver reads, of both families
MAX_KEPT: Final = 1024  # that one name may stand for, with those that it stood for a moment ago
MAX_INNER: Final = 64  # inner ones among them
RETRY: Final = 5.0  # seconds until a name that failed is asked for again; each time twice as long
MAX_RETRY: Final = 40.0


@dataclass(frozen=True, slots=True)
class Answer:
    """What a resolver said about one name: addresses with their time to live, or an error.

    Both together: one of the two families could not be asked for.
    """

    name: str
    addresses: tuple[tuple[Network, float], ...]
    error: str = ""


@dataclass(slots=True)
class Known:
    """What is known of a name: each address, and when it stops counting."""

    heard_at: float
    outer: dict[Network, float] = field(default_factory=dict)
    inner: dict[Network, float] = field(default_factory=dict)
    lasts: float = 0.0  # seconds, by the shortest time to live
    error: str = ""
    failed: bool = False  # wholly, when it was last asked for

    def __len__(self) -> int:
        """How many addresses it stands for."""
        return len(self.outer) + len(self.inner)

    def __contains__(self, address: Network) -> bool:
        """Tell whether an address is one of them."""
        return address in self.outer or address in self.inner

    def is_due(self, now: float, refresh: float) -> bool:
        """Tell whether it should be asked for again by who wants it no older than this."""
        return now >= self.heard_at + min(self.lasts, refresh)

    def take(self, answer: Answer, now: float, grace: float) -> bool:
        """Take an answer in; tell whether there is something else to open or to say."""
        before = frozenset(self.outer), frozenset(self.inner), self.error
        pause = min(self.lasts * 2, MAX_RETRY) if self.error else RETRY
        self.error, self.failed, self.heard_at = answer.error, not answer.addresses, now
        if self.failed:
            # What it stood for stays: others may still use it.
            self.error, self.lasts = answer.error or "no address", pause
        else:
            self._replace(answer, now, grace)
            self.lasts = min(self.lasts, pause) if answer.error else self.lasts
        return before != (frozenset(self.outer), frozenset(self.inner), self.error)

    def _replace(self, answer: Answer, now: float, grace: float) -> None:
        ttls = [min(max(ttl, MIN_TTL), MAX_TTL) for _, ttl in answer.addresses]
        self.lasts = min(ttls)
        # An address stays for one more round after it was last seen: somebody who asked just
        # before the answer changed may still use it.
        for (address, _), ttl in zip(answer.addresses[:MAX_ADDRESSES], ttls, strict=False):
            kept = self.inner if inside(address) else self.outer
            kept.pop(address, None)
            kept[address] = now + ttl + grace
        heard = {address.version for address, _ in answer.addresses} if answer.error else {4, 6}
        # Whoever answers with others each time does not open, or make us keep, ever more.
        self.outer = _latest(self.outer, now, heard, MAX_KEPT)
        self.inner = _latest(self.inner, now, heard, MAX_INNER)


def _latest(
    addresses: dict[Network, float], now: float, heard: Container[int], most: int
) -> dict[Network, float]:
    kept = [
        (address, until)
        for address, until in addresses.items()
        if until > now or address.version not in heard  # nobody said that it is none any more
    ]
    return dict(kept[-most:])
