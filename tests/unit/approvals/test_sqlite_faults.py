"""A SQLite file that is full, corrupt, something else or open to others."""

from __future__ import annotations

import os
import resource
import signal
import sqlite3
import stat
from typing import TYPE_CHECKING

import pytest
from approvals.cases import ADA, read

from democrai_osguard.approvals import (
    ApprovalCheckFailed,
    ApprovalService,
    StoreRefused,
    open_store,
)
from democrai_osguard.approvals.sql_store import SqlStore
from democrai_osguard.approvals.sqlite import SqliteDatabase
from democrai_osguard.audit.private_files import UnsafeFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return the path of a store that holds one permanent approval."""
    store = tmp_path / "folder" / "store"
    service = ApprovalService(open_store(f"sqlite://{store}"))
    service.approve_permanently(service.register(read("/srv/a")).id, ADA)
    service.close()
    return store


@pytest.fixture
def hasty(path: Path) -> Iterator[ApprovalService]:
    """Return a service on the store that does not wait long for others."""
    service = ApprovalService(SqlStore(SqliteDatabase(str(path), busy_seconds=0.05)))
    yield service
    service.close()


def test_the_file_is_private_and_so_is_its_folder(path: Path) -> None:
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_files_beside_it_are_private_too(path: Path, hasty: ApprovalService) -> None:
    hasty.register(read("/srv/b"))
    for name in os.listdir(path.parent):
        assert stat.S_IMODE((path.parent / name).stat().st_mode) == 0o600


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_store_that_others_can_write_is_refused(path: Path, mode: int) -> None:
    path.chmod(mode)
    with pytest.raises(UnsafeFile, match="can be written by others"):
        open_store(f"sqlite://{path}")


def test_a_folder_that_others_can_write_is_refused(path: Path) -> None:
    path.parent.chmod(0o770)
    with pytest.raises(UnsafeFile, match="external_access_store_unsafe"):
        open_store(f"sqlite://{path}")


def test_a_folder_below_one_that_everybody_can_write_is_refused(path: Path) -> None:
    path.parent.parent.chmod(0o777)
    with pytest.raises(UnsafeFile, match="everybody"):
        open_store(f"sqlite://{path}")
    path.parent.parent.chmod(0o1777)  # nobody renames what is not theirs in a sticky folder
    open_store(f"sqlite://{path}").close()


def test_a_link_is_no_store(path: Path) -> None:
    link = path.parent / "link"
    link.symlink_to(path)
    with pytest.raises(UnsafeFile, match="not a plain file"):
        open_store(f"sqlite://{link}")


def _in_child(act: Callable[[], str]) -> str:
    """Return what an act in a fork says, so that what it gives up is given up there only."""
    hears, says = os.pipe()
    child = os.fork()
    if child == 0:
        words = "crashed"
        try:
            words = act()
        except Exception as error:  # noqa: BLE001 - the parent compares it
            words = str(error)
        finally:
            os.write(says, words.encode())
            os._exit(0)
    os.close(says)
    with os.fdopen(hears) as pipe:
        words = pipe.read()
    os.waitpid(child, 0)
    return words


def test_a_full_disk_is_an_error_and_the_store_is_as_it_was(path: Path) -> None:
    def act() -> str:
        service = ApprovalService(open_store(f"sqlite://{path}"))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
        service.register(read("/srv/b"))
        return "written"

    assert "sandbox_external_access_check_failed" in _in_child(act)
    service = ApprovalService(open_store(f"sqlite://{path}"))
    assert service.list_requests() == []
    assert service.check(read("/srv/a")).code == "permanent_approval"
    service.close()


@pytest.mark.parametrize("damage", [b"not a database at all" * 400, b"\0" * 5000])
def test_a_corrupt_store_is_an_error(path: Path, damage: bytes) -> None:
    for name in os.listdir(path.parent):
        if name != path.name:
            (path.parent / name).unlink()
    path.write_bytes(damage)
    with pytest.raises(ApprovalCheckFailed):
        open_store(f"sqlite://{path}")
    assert path.read_bytes() == damage


def test_a_store_that_is_damaged_in_the_middle_fails_closed(path: Path) -> None:
    whole = path.read_bytes()
    path.write_bytes(whole[:4096] + b"\xff" * (len(whole) - 4096))
    with pytest.raises(ApprovalCheckFailed):
        ApprovalService(open_store(f"sqlite://{path}")).check(read("/srv/a"))


def test_a_database_of_something_else_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir(mode=0o700)
    with sqlite3.connect(folder / "other") as connection:
        connection.execute("CREATE TABLE songs (title TEXT)")
    connection.close()
    (folder / "other").chmod(0o600)
    with pytest.raises(StoreRefused, match="something else"):
        open_store(f"sqlite://{folder}/other")


@pytest.mark.parametrize(
    "url", ["", "store.db", "sqlite:", "sqlite://host/x", "sqlite:///x?mode=ro", "mysql://x"]
)
def test_a_url_of_no_store_is_refused(url: str) -> None:
    with pytest.raises(StoreRefused, match="external_access_store_refused"):
        open_store(url)


@pytest.mark.parametrize(
    "rest", ["", "/", "//", "///", "///:memory:", "///a?mode=ro", "//host/a", "a", "///a#b"]
)
def test_a_url_that_names_no_file_of_its_own_opens_no_store(rest: str) -> None:
    with pytest.raises(StoreRefused, match="a SQLite store is written sqlite:///path"):
        open_store(f"sqlite:{rest}")
