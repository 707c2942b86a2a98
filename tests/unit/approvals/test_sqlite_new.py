"""A store that several make at once: each of them waits for the others."""

from __future__ import annotations

import sqlite3
import threading
from typing import TYPE_CHECKING

import pytest

from democrai_osguard.approvals.errors import ApprovalCheckFailed
from democrai_osguard.approvals.sqlite import SqliteDatabase

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def maker(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """Somebody who makes the same store, and has got as far as its first write."""
    folder = tmp_path / "store"
    folder.mkdir(mode=0o700)
    path = folder / "approvals.sqlite3"
    path.touch(mode=0o600)
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    connection.execute("BEGIN IMMEDIATE")
    yield connection
    connection.close()


def test_who_opens_a_store_that_another_makes_waits_for_it(
    maker: sqlite3.Connection, tmp_path: Path
) -> None:
    done = threading.Timer(0.3, maker.execute, ["ROLLBACK"])
    done.start()
    database = SqliteDatabase(str(tmp_path / "store" / "approvals.sqlite3"))
    assert database.fetch("PRAGMA journal_mode") == [("wal",)]
    database.close()
    done.join()


def test_and_not_for_ever(maker: sqlite3.Connection, tmp_path: Path) -> None:
    path = str(tmp_path / "store" / "approvals.sqlite3")
    database = SqliteDatabase(path, busy_seconds=0.05)
    with pytest.raises(ApprovalCheckFailed, match="locked by another process"):
        database.fetch("PRAGMA journal_mode")
    maker.execute("ROLLBACK")
    assert database.fetch("PRAGMA journal_mode") == [("wal",)]
    database.close()
