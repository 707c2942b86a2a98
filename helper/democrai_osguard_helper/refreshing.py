"""Keeps names and sandboxes in step: new addresses are opened as answers arrive."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .keeper import Refusal
from .protocol import Notice

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

    def due(self) -> tuple[str, ...]:
        """Return the names that running sandboxes use and whose time has come."""
        rules = [rule for record in self._keeper.records.values() for rule in record.names]
        return self._book.due(rules)

    def heard(self, answer: Answer, resolvers: tuple[Network, ...]) -> None:
        """Take an answer in; a name that fails is reported, and leaves everything as it is."""
        if resolvers:
            self._book.resolvers = resolvers
        changed = self._book.learn(answer)
        for record in list(self._keeper.records.values()):
            if any(rule.name == answer.name for rule in record.names):
                self._refresh(record, answer, changed=changed)

    def _refresh(self, record: Record, answer: Answer, *, changed: bool) -> None:
        if answer.error:
            text = f"{answer.name}: {answer.error}"[:400]
            self._publish(record.uid, Notice(record.name, "name_failed", text))
        if not changed:
            return
        addresses = self._book.addresses(record.names)
        try:
            kept = self._keeper.still_used(record, addresses)
            self._keeper.change(record, record.endpoints, record.names, (*addresses, *kept))
        except (Refusal, OSError) as error:
            self._publish(record.uid, Notice(record.name, "refresh_failed", str(error)[:400]))
