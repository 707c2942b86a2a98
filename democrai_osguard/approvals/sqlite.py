"""A store in one SQLite file that only its owner can touch.

Write-ahead logging, so that readers never wait; every commit reaches the disk before it is
acknowledged. Connections are kept for reuse, and never across a fork.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections import deque
from typing import TYPE_CHECKING

from democrai_osguard.approvals.database import Dialect, Row
from democrai_osguard.approvals.errors import ApprovalCheckFailed, StoreRefused
from democrai_osguard.audit.private_files import check_private_file, open_private, private_folder

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

BUSY_SECONDS = 10.0  # how long a writer waits for another one
_POLL_SECONDS = 0.1
_RETRY_SECONDS = 0.01
_CACHE_KIB = 2048  # of each connection, for what it writes: what it reads is mapped
_MAPPED_BYTES = 1 << 30  # pages are read without a system call, so that a large store stays quick

_PRAGMAS = (
    "PRAGMA synchronous = FULL",  # an acknowledged decision survives a power cut
    f"PRAGMA cache_size = -{_CACHE_KIB}",
    f"PRAGMA mmap_size = {_MAPPED_BYTES}",
    "PRAGMA trusted_schema = OFF",
    "PRAGMA temp_store = MEMORY",
)
_REASONS = {
    sqlite3.SQLITE_BUSY: "the store is locked by another process",
    sqlite3.SQLITE_LOCKED: "the store is locked by another process",
    sqlite3.SQLITE_READONLY: "the store is read-only",
    sqlite3.SQLITE_FULL: "the disk of the store is full",
    sqlite3.SQLITE_IOERR: "the disk of the store failed or is full",
    sqlite3.SQLITE_CORRUPT: "the store is corrupt",
    sqlite3.SQLITE_NOTADB: "the store is corrupt: not a database",
    sqlite3.SQLITE_CANTOPEN: "the store cannot be opened",
}

# A connection that was opened before a fork must be neither used nor closed after it.
_inherited: list[sqlite3.Connection] = []


class SqliteTransaction:
    """The statements of one transaction."""

    __slots__ = ("_connection",)

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def execute(self, sql: str, values: Sequence[object] = ()) -> list[Row]:
        """Run a statement and return the rows that it gives."""
        return self._connection.execute(sql, values).fetchall()

    def change(self, sql: str, values: Sequence[object] = ()) -> int:
        """Run a statement and return how many rows it changed."""
        return self._connection.execute(sql, values).rowcount


class SqliteDatabase:
    """One file, shared by threads and processes."""

    dialect = Dialect(
        serial="INTEGER PRIMARY KEY AUTOINCREMENT",
        blob="BLOB",
        tables="SELECT name FROM sqlite_master WHERE type = 'table'",
        shares=False,
    )

    def __init__(self, path: str, *, busy_seconds: float = BUSY_SECONDS) -> None:
        folder = private_folder(os.path.dirname(os.path.abspath(path)))
        self.path = os.path.join(folder, os.path.basename(path))
        self._busy_seconds = busy_seconds
        self._idle: deque[sqlite3.Connection] = deque()
        self._owner = os.getpid()
        self._make()

    def fetch(self, sql: str, values: Sequence[object] = ()) -> list[Row]:
        """Run one query outside of a transaction."""
        connection = self._take()
        try:
            rows = connection.execute(sql, values).fetchall()
        except BaseException as error:
            connection.close()
            _raise_ours(error)
            raise
        self._idle.append(connection)
        return rows

    @contextlib.contextmanager
    def write(self) -> Iterator[SqliteTransaction]:
        """Open the one writing transaction; it commits at the end, or leaves no trace."""
        connection = self._take()
        try:
            connection.execute("BEGIN IMMEDIATE")
            yield SqliteTransaction(connection)
            connection.execute("COMMIT")
        except BaseException as error:
            connection.close()  # which rolls back
            _raise_ours(error)
            raise
        self._idle.append(connection)

    def wait(self, known: int, timeout: float) -> int:
        """Return the store's revision once it is not the known one, or after the timeout."""
        until = time.monotonic() + timeout
        while True:
            rows = self.fetch("SELECT value FROM approval_meta WHERE name = 'revision'")
            revision = int(rows[0][0])
            left = until - time.monotonic()
            if revision != known or left <= 0:
                return revision
            time.sleep(min(left, _POLL_SECONDS))

    def close(self) -> None:
        """Let go of every connection."""
        while self._idle:
            self._idle.pop().close()

    def _make(self) -> None:
        # Only before any connection: closing a descriptor of the file would drop their locks.
        if not os.path.lexists(self.path):
            with contextlib.suppress(FileExistsError):
                os.close(open_private(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL))
        for suffix in ("", "-wal", "-shm"):
            with contextlib.suppress(FileNotFoundError):
                check_private_file(self.path + suffix)

    def _take(self) -> sqlite3.Connection:
        if self._owner != os.getpid():
            _inherited.extend(self._idle)
            self._idle, self._owner = deque(), os.getpid()
        try:
            return self._idle.pop()
        except IndexError:
            return self._connect()

    def _connect(self) -> sqlite3.Connection:
        try:
            connection = sqlite3.connect(
                self.path,
                timeout=self._busy_seconds,
                isolation_level=None,
                check_same_thread=False,
            )
        except sqlite3.Error as error:
            _raise_ours(error)
            raise
        try:
            for pragma in _PRAGMAS:
                connection.execute(pragma)
            mode = self._write_ahead(connection)
        except BaseException as error:
            connection.close()
            _raise_ours(error)
            raise
        if mode != "wal":
            connection.close()
            raise StoreRefused("this file system cannot hold a store: no write-ahead log")
        return connection

    def _write_ahead(self, connection: sqlite3.Connection) -> str:
        # Two that both change the mode of a new store are told "locked" at once, without the wait
        # that every other statement has.
        until = time.monotonic() + self._busy_seconds
        while True:
            try:
                return str(connection.execute("PRAGMA journal_mode = WAL").fetchone()[0])
            except sqlite3.OperationalError as error:
                if _code(error) != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                    raise
            time.sleep(_RETRY_SECONDS)


def _code(error: sqlite3.Error) -> int:
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def _raise_ours(error: BaseException) -> None:
    """Raise an error of SQLite as one of ours; leave any other to the caller."""
    if isinstance(error, sqlite3.Error):
        reason = _REASONS.get(_code(error), f"the store failed: {error}")
        if str(error).startswith("no such "):  # SQLite has no code of its own for this
            reason = f"the store is corrupt: {error}"
        raise ApprovalCheckFailed(reason) from error
