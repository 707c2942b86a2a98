"""Keeps names and sandboxes in step: new addresses are opened soon after answers arrive.

An answer is noted at once and its sandboxes are changed later, one at a time: however many answers
arrive meanwhile, each sandbox is changed once, and others are served between two.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .keeper import Refusal
from .names import Use, asked_name
from .protocol import Notice
from .turns import Asker

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .answers import Answer
    from .endpoints import Network
    from .keeper import Keeper
    from .names import Complaint, NameBook
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
        self._said: dict[str, Mapping[str, Complaint]] = {}  # sandbox → what is wrong with names
        self._stale: dict[str, None] = {}  # sandboxes, the first to wait first
        self._turns: dict[int, int] = {}  # account → how often it was its turn since all was done

    def due(self) -> dict[Asker, list[str]]:
        """Return the names that each running sandbox uses and whose time has come."""
        records = self._keeper.records.values()
        self._said = {name: said for name, said in self._said.items() if self._is_there(name)}
        accounts = {each.uid: self._keeper.account_of(each.uid) for each in records}
        used = [
            Use(rule, each.refresh, accounts[each.uid]) for each in records for rule in each.names
        ]
        due = frozenset(self._book.due(used))
        return {
            Asker(accounts[each.uid], each.name): sorted(names)
            for each in records
            if (names := due.intersection(map(asked_name, each.names)))
        }

    def heard(self, answer: Answer, resolvers: tuple[Network, ...]) -> None:
        """Take an answer in; a name that fails is reported, and leaves everything as it is."""
        moved = bool(resolvers) and resolvers != self._book.resolvers
        if moved:
            self._book.resolvers = resolvers
        changed = self._book.learn(answer)
        for record in self._keeper.records.values():
            uses = changed and any(rule.name == answer.name for rule in record.names)
            if uses or (record.names and moved):
                self._stale[record.name] = None

    def catch_up(self) -> bool:
        """Let one sandbox, of a user whose turn it is, have what the answers say.

        Tell whether more are waiting.
        """
        self._stale = {name: None for name in self._stale if self._is_there(name)}
        if not self._stale:
            self._turns.clear()
            return False
        name = min(self._stale, key=lambda each: self._turns.get(self._account(each), 0))
        del self._stale[name]
        self._turns[self._account(name)] = self._turns.get(self._account(name), 0) + 1
        record = self._keeper.records[name]
        self._report(record)
        self._refresh(record)
        return bool(self._stale)

    def _is_there(self, sandbox: str) -> bool:
        return sandbox in self._keeper.records

    def _account(self, sandbox: str) -> int:
        return self._keeper.account_of(self._keeper.records[sandbox].uid)

    def _refresh(self, record: Record) -> None:
        addresses = self._book.standing(record, record.names)
        try:
            kept = self._keeper.still_used(record, addresses)
            self._keeper.change(record, record.endpoints, record.names, (*addresses, *kept))
        except (Refusal, OSError) as error:
            self._publish(record.uid, Notice(record.name, "refresh_failed", str(error)[:400]))

    def _report(self, record: Record) -> None:
        """Say what is wrong with each name, once: until it is another thing or nothing."""
        known = self._said.get(record.name, {})
        wrong = self._said[record.name] = self._book.complaints(record.names, record.endpoints)
        for name, complaint in wrong.items():
            if name not in known or known[name].kind != complaint.kind:
                self._publish(record.uid, Notice(record.name, "name_failed", complaint.text[:400]))
