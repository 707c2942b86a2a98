"""Copies, moves, archives and folders at places that may be made and not read.

The standard library looks before it acts. What it is told must not turn a right into a refusal, or
a refusal into an error of another kind.
"""

from __future__ import annotations

import os
import shutil
import tarfile
import zipfile
from typing import TYPE_CHECKING

import pytest
from guard.confined import confined

from democrai_osguard import Rule
from democrai_osguard.guard import process_guard_context

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Act = Callable[[Path, Path], object]

READ_AND_CREATE = ("read source", "create target")
DELETE_AND_CREATE = ("delete source", "create target")
WORKS: dict[str, tuple[tuple[str, ...], Act]] = {
    "makedirs": (("create target",), lambda _, to: os.makedirs(to, exist_ok=True)),
    "Path.mkdir": (("create target",), lambda _, to: to.mkdir(exist_ok=True)),
    "Path.mkdir with parents": (
        ("create target",),
        lambda _, to: _twice(to / "a/b"),
    ),
    "copy into a folder": (READ_AND_CREATE, lambda at, to: shutil.copy(at / "file", to)),
    "copy2 into a folder": (READ_AND_CREATE, lambda at, to: shutil.copy2(at / "file", to)),
    "move into a folder": (DELETE_AND_CREATE, lambda at, to: shutil.move(at / "file", to)),
    "move a folder": (DELETE_AND_CREATE, lambda at, to: shutil.move(at / "inner", to)),
    "make a zip": (
        READ_AND_CREATE,
        lambda at, to: shutil.make_archive(str(to / "new"), "zip", at / "inner"),
    ),
    "make a tar": (
        READ_AND_CREATE,
        lambda at, to: shutil.make_archive(str(to / "new"), "gztar", at / "inner"),
    ),
    "unpack a zip": (READ_AND_CREATE, lambda at, to: shutil.unpack_archive(at / "a.zip", to)),
    "unpack a tar where it is read": (
        (*READ_AND_CREATE, "read target"),
        lambda at, to: _unpack_tar(at / "a.tar", to),
    ),
    "unpack a tar": (READ_AND_CREATE, lambda at, to: _unpack_tar(at / "a.tar", to)),
}
# Rules, the act, and the operation and the place that it is refused for.
REFUSED: dict[str, tuple[tuple[str, ...], Act, str, str]] = {
    "makedirs": ((), lambda _, to: os.makedirs(to, exist_ok=True), "create", "target"),
    "Path.mkdir": ((), lambda _, to: to.mkdir(exist_ok=True), "create", "target"),
    "copy over a file": (
        READ_AND_CREATE,
        lambda at, to: shutil.copy(at / "old", to),
        "modify",
        "target/old",
    ),
    "move over a file": (
        DELETE_AND_CREATE,
        lambda at, to: shutil.move(at / "file", to / "old"),
        "modify",
        "target/old",
    ),
    "move from what is closed": (
        ("create target",),
        lambda at, to: shutil.move(at / "file", to),
        "delete",
        "source/file",
    ),
    "unpack a closed zip": (
        ("create target",),
        lambda at, to: shutil.unpack_archive(at / "a.zip", to),
        "read",
        "source/a.zip",
    ),
    "unpack a closed tar": (
        ("create target",),
        lambda at, to: _unpack_tar(at / "a.tar", to),
        "read",
        "source/a.tar",
    ),
    "is_zipfile": ((), lambda at, _: zipfile.is_zipfile(at / "a.zip"), "read", "source/a.zip"),
}


def _twice(folder: Path) -> None:
    for _ in range(2):
        folder.mkdir(parents=True, exist_ok=True)


def _unpack_tar(archive: Path, folder: Path) -> None:
    shutil.unpack_archive(archive, folder, filter="data")


@pytest.fixture
def places(tmp_path: Path) -> Path:
    (tmp_path / "source/inner").mkdir(parents=True)
    (tmp_path / "target").mkdir()
    for name in ("source/file", "source/old", "source/inner/file", "target/old", "outside"):
        (tmp_path / name).write_text(name)
    with zipfile.ZipFile(tmp_path / "source/a.zip", "w") as packed:
        packed.writestr("folder/file", "packed")
    with tarfile.open(tmp_path / "source/a.tar", "w") as tar:
        tar.add(tmp_path / "source/file", "folder/file")
    return tmp_path


def _outcome(places: Path, rules: tuple[str, ...], act: Act) -> object:
    pairs = [line.split() for line in rules]
    access = [Rule.of("filesystem", verb, str(places / name)) for verb, name in pairs]

    def check() -> object:
        with process_guard_context("m", "module", access):
            try:
                act(places / "source", places / "target")
            except PermissionError as error:
                refused = str(getattr(error, "target", "")).removeprefix(f"{places}/")
                return [getattr(error, "operation", None), refused]
            except OSError as error:
                return repr(error)
        return "done"

    return confined(check)


@pytest.mark.parametrize("name", WORKS)
def test_what_may_be_made_is_made(places: Path, name: str) -> None:
    rules, act = WORKS[name]
    assert _outcome(places, rules, act) == "done"


@pytest.mark.parametrize("name", REFUSED)
def test_a_refusal_names_the_operation_that_is_missing(places: Path, name: str) -> None:
    rules, act, operation, place = REFUSED[name]
    assert _outcome(places, rules, act) == [operation, place]


def test_what_must_be_new_or_is_no_folder_is_still_an_error(places: Path) -> None:
    create = ("create target",)
    twice = _outcome(places, create, lambda _, to: os.makedirs(to))
    assert str(twice).startswith("FileExistsError")
    ways: tuple[Act, ...] = (
        lambda _, to: os.makedirs(to / "old", exist_ok=True),
        lambda _, to: (to / "old").mkdir(exist_ok=True),
    )
    for way in ways:
        assert str(_outcome(places, create, way)).startswith("FileExistsError")


def test_guarded_code_itself_reads_where_it_looks(places: Path) -> None:
    found = _outcome(places, ("create target",), lambda _, to: to.exists())
    assert found == ["read", "target"]


@pytest.mark.parametrize("outside", ["outside", "nothing"])
def test_a_link_does_not_tell_what_is_outside(places: Path, outside: str) -> None:
    """A library is asked to make what a link leads to: no difference between there and not."""

    def act(_: Path, to: Path) -> None:
        os.symlink(places / outside, to / "link")
        os.makedirs(to / "link", exist_ok=True)

    assert str(_outcome(places, ("create target",), act)).startswith("FileExistsError")
