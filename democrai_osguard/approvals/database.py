"""What a store needs of a database: rows read, and transactions that are whole or absent.

SQL is written once, with `?` for values; each database reads it in its own dialect.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Dialect:
    """The few words in which the databases differ."""

    serial: str  # the type of a key that the database counts up itself
    blob: str
    tables: str  # a query for the names of all tables
    shares: bool  # whether other programs may have tables beside ours


class Transaction(Protocol):
    """Statements that take effect together. Only one is open on a store at any time."""

    def execute(self, sql: str, values: Sequence[object] = ()) -> list[Row]:
        """Run a statement and return the rows that it gives."""

    def change(self, sql: str, values: Sequence[object] = ()) -> int:
        """Run a statement and return how many rows it changed."""


class Database(Protocol):
    """A database that holds one store. Safe for threads, and after a fork.

    Every method raises ApprovalCheckFailed where the database cannot do it.
    """

    dialect: Dialect

    @property
    def path(self) -> str | None:
        """The file that it is in; None where a server keeps it."""

    def fetch(self, sql: str, values: Sequence[object] = ()) -> list[Row]:
        """Run one query outside of a transaction."""

    def write(self) -> AbstractContextManager[Transaction]:
        """Open the one writing transaction; it commits at the end, or leaves no trace."""

    def wait(self, known: int, timeout: float) -> int:
        """Return the store's revision once it is not the known one, or after the timeout."""

    def close(self) -> None:
        """Let go of every connection."""
