"""Opens a store by its URL, and the whole service from the application's state folder."""

from __future__ import annotations

import os

from democrai_osguard.approvals.errors import StoreRefused
from democrai_osguard.approvals.service import ApprovalService
from democrai_osguard.approvals.sql_store import SqlStore
from democrai_osguard.audit.log import AuditLog
from democrai_osguard.audit.private_files import NoFolder
from democrai_osguard.directories import state_dir

_NO_FILES = {"/", "/:memory:"}  # the second would be a file of that name in the root folder


def open_store(url: str) -> SqlStore:
    """Return the store at `sqlite:///path` or `postgresql://…`, brought to this version."""
    opened = {"sqlite": _open_sqlite, "postgresql": _open_postgres, "postgres": _open_postgres}
    opener = opened.get(url.partition(":")[0])
    if opener is None:
        raise StoreRefused("a store is written sqlite:///path or postgresql://…")
    store = opener(url)
    store.url = url
    return store


def default_store_url() -> str:
    """Return the URL of the store in the application's state folder."""
    from urllib.parse import quote  # noqa: PLC0415 - the guard loads this file, and not that

    path = os.path.join(_state(), "approvals", "approvals.sqlite3")
    return f"sqlite://{quote(os.fsencode(path))}"


def open_service(url: str | None = None, *, pending_ttl: float | None = None) -> ApprovalService:
    """Return the service with its keys and audit log from the application's state folder."""
    store = open_store(default_store_url()) if url is None else _named_store(url)
    return ApprovalService(store, audit=AuditLog(audit_folder()), pending_ttl=pending_ttl)


def _named_store(url: str) -> SqlStore:
    try:
        return open_store(url)
    except NoFolder as error:  # whoever named the place can name another
        named_by = "--store or DEMOCRAI_APPROVALS_STORE"
        raise NoFolder(error.folder, error.error, named_by) from error


def audit_folder() -> str:
    """Return the folder of the audit log."""
    return os.path.join(_state(), "audit")


def _state() -> str:
    return os.path.abspath(state_dir())


def _open_sqlite(url: str) -> SqlStore:
    from urllib.parse import unquote, urlsplit  # noqa: PLC0415 - as above

    from democrai_osguard.approvals.sqlite import SqliteDatabase  # noqa: PLC0415 - loaded if used

    parts = urlsplit(url)
    path = unquote(parts.path, errors="surrogateescape")
    more = parts.netloc or parts.query or parts.fragment
    if more or not path.startswith("/") or path in _NO_FILES:
        raise StoreRefused("a SQLite store is written sqlite:///path, with no options")
    database = SqliteDatabase(path)
    try:
        return SqlStore(database)
    except BaseException:
        database.close()
        raise


def _open_postgres(url: str) -> SqlStore:
    try:
        from democrai_osguard.approvals.postgres import PostgresDatabase  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise StoreRefused(
            "PostgreSQL needs psycopg: pip install 'democrai-osguard[postgres]'"
        ) from error
    database = PostgresDatabase(url)
    try:
        return SqlStore(database)
    except BaseException:
        database.close()
        raise
