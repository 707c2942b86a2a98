"""Whose name is asked for next: users in turn, and of each user the askers in turn. Pure.

Nobody answers for some names, and each of them keeps a place busy for seconds. So places are
shared: however many such names somebody has, others find a place.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping


class Asker(NamedTuple):
    """Who wants names: a user, and one call or one sandbox of theirs."""

    uid: int
    key: Hashable


class Shares(NamedTuple):
    """How many names may be asked for at once, and wait."""

    all: int
    of_user: int
    of_asker: int
    waiting: int  # of one user


class Turns:
    """Names that wait, and those that are being asked for."""

    def __init__(self, shares: Shares) -> None:
        self._shares = shares
        self._waiting: dict[int, dict[Asker, deque[str]]] = {}  # those whose turn it is come first
        self._busy: dict[str, Asker] = {}

    def want(self, asker: Asker, names: Iterable[str]) -> tuple[str, ...]:
        """Let names wait for their turn; return those for which there is no room."""
        own = self._waiting.setdefault(asker.uid, {})
        room = self._shares.waiting - sum(map(len, own.values()))
        names = tuple(names)
        own.setdefault(asker, deque()).extend(names[: max(room, 0)])
        return names[max(room, 0) :]

    def forget(self, asker: Asker) -> None:
        """Drop what an asker waits for; what is being asked for keeps its place until answered."""
        own = self._waiting.get(asker.uid, {})
        own.pop(asker, None)
        if not own:
            self._waiting.pop(asker.uid, None)

    def replace(self, wanted: Mapping[Asker, Iterable[str]]) -> None:
        """Let these names wait and no others; whoever waited already keeps their place."""
        known = [asker for own in self._waiting.values() for asker in own if asker in wanted]
        self._waiting.clear()
        for asker in dict.fromkeys((*known, *wanted)):
            self.want(asker, wanted[asker])

    def take(self, is_wanted: Callable[[str], bool]) -> str | None:
        """Return the name whose turn it is, unless every place that it may have is busy."""
        if len(self._busy) >= self._shares.all:
            return None
        users = Counter(each.uid for each in self._busy.values())
        askers = Counter(self._busy.values())
        for uid in list(self._waiting):
            if users[uid] >= self._shares.of_user:
                continue
            for asker in list(self._waiting[uid]):
                if askers[asker] < self._shares.of_asker:
                    name = self._next(asker, is_wanted)
                    if name is not None:
                        return name
        return None

    def done(self, name: str) -> None:
        """Free the place of a name."""
        self._busy.pop(name, None)

    def all_done(self) -> None:
        """Free every place."""
        self._busy.clear()

    def _next(self, asker: Asker, is_wanted: Callable[[str], bool]) -> str | None:
        """Take the first name that is still wanted, and let the others come before the asker."""
        names = self._waiting[asker.uid][asker]
        while names:
            name = names.popleft()
            if is_wanted(name):
                self._busy[name] = asker
                self._go_last(asker)
                return name
        self.forget(asker)
        return None

    def _go_last(self, asker: Asker) -> None:
        own = self._waiting.pop(asker.uid)
        own[asker] = own.pop(asker)
        self._waiting[asker.uid] = own
