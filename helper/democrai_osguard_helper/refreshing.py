"""Keeps names and sandboxes in step: new addresses are opened as answers arrive."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .keeper import Refusal
from .names import asked_name
from .protocol import Notice
from .turns import Asker

if TYPE_CHECKING:
    from collections.abc import Callable

    from .endpoints import Network
    from .keeper import Keeper
    from .names import Answer, NameBook
    from .protocol import Reply
    from .records import Record


class Refreshing:
    """Takes answers of the resolver in, and gives sandboxes what follows from them."""

    def __init__(
        self, keeper: Keeper, book: NameBook, publish: Callable[[int | None, Reply], None]
    ) -> None:
        self._keeper = keeper
        self._book = book
        self._publish = publish
        self._said: dict[tuple[str, str], tuple[str, ...]] = {}  # sandbox and name → complaints

    def due(self) -> dict[Asker, list[str]]:
        """Return the names that each running sandbox uses and whose time has come."""
        records = self._keeper.records.values()
        self._said = {
            key: said for key, said in self._said.items() if key[0] in self._keeper.records
        }
        used = [(rule, each.refresh) for each in records for rule in each.names]
        due = frozenset(self._book.due(used))
        return {
            Asker(each.uid, each.name): sorted(names)
            for each in records
            if (names := due.intersection(map(asked_name, each.names)))
        }

    def heard(self, answer: Answer, resolvers: tuple[Network, ...]) -> None:
        """Take an answer in; a name that fails is reported, and leaves everything as it is."""
        moved = bool(resolvers) and resolvers != self._book.resolvers
        if moved:
            self._book.resolvers = resolvers
        changed = self._book.learn(answer)
        for record in list(self._keeper.records.values()):
            uses = any(rule.name == answer.name for rule in record.names)
            if uses:
                self._report(record, answer.name)
            if (uses and changed) or (record.names and moved):
                self._refresh(record)

    def _refresh(self, record: Record) -> None:
        addresses = self._book.standing(record, record.names, record.endpoints)
        try:
            kept = self._keeper.still_used(record, addresses)
            self._keeper.change(record, record.endpoints, record.names, (*addresses, *kept))
        except (Refusal, OSError) as error:
            self._publish(record.uid, Notice(record.name, "refresh_failed", str(error)[:400]))

    def _report(self, record: Record, name: str) -> None:
        """Say what is wrong with a name, once: until it is another thing or nothing."""
        rules = [rule for rule in record.names if rule.name == name]
        wrong = self._book.troubles(rules, record.endpoints)
        known = self._said.get((record.name, name), ())
        self._said[record.name, name] = wrong
        for text in dict.fromkeys(wrong):
            if text not in known:
                self._publish(record.uid, Notice(record.name, "name_failed", text[:400]))
