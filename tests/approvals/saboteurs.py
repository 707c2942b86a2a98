"""What can happen to a store from outside, for each kind: the same words, other means."""

from __future__ import annotations

import contextlib
import glob
import os
import sqlite3
from typing import TYPE_CHECKING, Protocol

from democrai_osguard.approvals.sql_store import SqlStore
from democrai_osguard.approvals.sqlite import SqliteDatabase

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

_HASTE = 0.05  # seconds that a service in a hurry waits for others
_NOBODY = 65534


class Saboteur(Protocol):
    """Breaks one store."""

    url: str

    def hasty_store(self) -> SqlStore:
        """Return the store as somebody opens it who does not wait long for others."""

    def locked(self) -> AbstractContextManager[None]:
        """Let another writer hold the store meanwhile."""

    def read_only(self) -> AbstractContextManager[None]:
        """Let nobody write meanwhile."""

    def change(self, sql: str) -> None:
        """Change the store behind the program's back."""


class FileSaboteur:
    """Breaks a SQLite file, which lies where another user can reach it."""

    def __init__(self, path: str) -> None:
        self.url = f"sqlite://{path}"
        self._path = path

    def hasty_store(self) -> SqlStore:
        return SqlStore(SqliteDatabase(self._path, busy_seconds=_HASTE))

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        holder = sqlite3.connect(self._path, isolation_level=None)
        holder.execute("BEGIN IMMEDIATE")
        try:
            yield
        finally:
            holder.close()

    @contextlib.contextmanager
    def read_only(self) -> Iterator[None]:
        with self._as_nobody():
            os.chmod(self._path, 0o400)
            try:
                yield
            finally:
                for path in glob.glob(f"{self._path}*"):  # those that SQLite made beside it, too
                    os.chmod(path, 0o600)

    @contextlib.contextmanager
    def _as_nobody(self) -> Iterator[None]:
        """Give the files and this process to nobody: no mode of a file stops root."""
        own = os.geteuid()
        if own != 0:
            yield
            return
        self._give_to(_NOBODY)
        os.seteuid(_NOBODY)
        try:
            yield
        finally:
            os.seteuid(own)
            self._give_to(own)

    def _give_to(self, user: int) -> None:
        folder = os.path.dirname(self._path)
        for place in (folder, *(os.path.join(folder, name) for name in os.listdir(folder))):
            os.chown(place, user, -1)

    def change(self, sql: str) -> None:
        with contextlib.closing(sqlite3.connect(self._path)) as connection, connection:
            connection.execute(sql)


class ServerSaboteur:
    """Breaks a database on a PostgreSQL server."""

    def __init__(self, url: str) -> None:
        self.url = url

    def hasty_store(self) -> SqlStore:
        from democrai_osguard.approvals.postgres import PostgresDatabase  # noqa: PLC0415 - an extra

        return SqlStore(PostgresDatabase(self.url, busy_seconds=_HASTE))

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        import psycopg  # noqa: PLC0415 - an extra

        with psycopg.connect(self.url) as holder:
            holder.execute("LOCK TABLE approval_meta IN EXCLUSIVE MODE")
            yield
            holder.rollback()

    @contextlib.contextmanager
    def read_only(self) -> Iterator[None]:
        self._default_read_only("on")
        try:
            yield
        finally:
            self._default_read_only("off")

    def _default_read_only(self, word: str) -> None:
        name = self.url.partition(":///")[2].partition("?")[0]
        self.change(f"ALTER DATABASE {name} SET default_transaction_read_only = {word}")
        self.lose_connections()  # those that are open keep their own word

    def lose_connections(self) -> None:
        """End every connection of the program."""
        self.change(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE pid <> pg_backend_pid() AND application_name = 'democrai-osguard'"
        )

    def change(self, sql: str) -> None:
        import psycopg  # noqa: PLC0415 - an extra

        writable = "-c default_transaction_read_only=off"
        with psycopg.connect(self.url, options=writable, autocommit=True) as connection:
            connection.execute(sql.encode())
