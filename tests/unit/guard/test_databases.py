"""SQLite under a guard works as without one, as far as the rules reach."""

from __future__ import annotations

import sqlite3
import warnings
from typing import TYPE_CHECKING

import pytest
from guard.confined import confined

from democrai_osguard.guard import process_guard_context

if TYPE_CHECKING:
    from pathlib import Path


class Mine(sqlite3.Connection):
    """A class of an application, from before the guard."""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DEMOCRAI_TEMP_DIR", str(tmp_path / "temp"))
    (tmp_path / "own").mkdir()
    return tmp_path / "own"


def test_connections_are_opened_in_every_way(place: Path) -> None:
    def check() -> object:
        before = sqlite3.connect(place / "one.db")
        warnings.simplefilter("ignore", DeprecationWarning)  # of arguments by position
        with process_guard_context("m", "module", allowed_paths=[str(place)]):

            class Own(sqlite3.Connection):
                pass

            opened = [
                sqlite3.connect(place / "one.db", 3),
                sqlite3.connect(f"file:{place}/one.db?mode=rwc", uri=True, isolation_level=None),
                sqlite3.connect(str(place / "one.db"), 5.0, 0, None, True, Own),
                sqlite3.connect(place / "one.db", factory=Own, cached_statements=9),
                sqlite3.Connection(str(place / "one.db"), check_same_thread=False),
                sqlite3.connect(":memory:"),
            ]
            kinds = [type(each).__name__ for each in opened]
            opened[0].execute("create table t (x)")
            opened[0].execute("insert into t values (1)")
            opened[0].commit()
            opened[0].execute("vacuum")
            opened[3].execute(f"attach '{place}/two.db' as o")
            found: list[object] = [
                all(isinstance(each, sqlite3.Connection) for each in (*opened, before))
            ]
            found += [opened[1].execute("select count(*) from t").fetchone()[0], *kinds]
            for each in opened:
                each.close()
        before.close()
        return found

    own = ["Own", "Own"]
    expected = [True, 1, "Connection", "Connection", *own, "Connection", "Connection"]
    assert confined(check) == expected


def test_what_was_there_before_is_still_of_its_class(place: Path) -> None:
    def check() -> object:
        connection = sqlite3.connect(place / "one.db", factory=Mine)
        with process_guard_context("m", "module", allowed_paths=[str(place)]):
            other = sqlite3.connect(place / "one.db", factory=Mine)
            kinds = [Mine, sqlite3.Connection]
            found = [isinstance(each, kind) for each in (connection, other) for kind in kinds]
            other.close()
        connection.close()
        return found

    assert confined(check) == [True] * 4
