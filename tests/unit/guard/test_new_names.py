"""A new name for a file makes nothing possible that its old name does not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from guard.confined import confined

from democrai_osguard import Rule, process_guard_context
from democrai_osguard.errors import OsGuardError

EARLY = {"link": os.link, "rename": os.rename, "replace": os.replace}  # from before any guard


def guard(tmp_path: Path, there: str, here: str) -> process_guard_context:
    """Return a guard with these operations in the folder `there`, and those in `here`."""
    rules = [
        Rule.of("filesystem", word, str(tmp_path / name))
        for name, words in (("there", there), ("here", here))
        for word in words.split()
    ]
    return process_guard_context("notes", "module", rules, include_runtime_paths=False)


@pytest.fixture
def places(tmp_path: Path) -> tuple[str, str]:
    for name in ("there", "here"):
        (tmp_path / name).mkdir()
    (tmp_path / "there/file").write_text("original")
    return str(tmp_path / "there/file"), str(tmp_path / "here/file")


@pytest.mark.parametrize("early", [True, False])
@pytest.mark.parametrize(
    ("act", "rules", "allowed"),
    [
        ("link", ("read", "create"), True),
        ("link", ("read", "read create delete"), True),
        ("link", ("read modify", "create modify"), True),
        ("link", ("read", "create modify"), False),
        ("link", ("read", "create execute"), False),
        ("link", ("read execute", "create execute"), True),
        ("rename", ("delete", "create"), True),
        ("rename", ("delete", "create modify delete"), True),
        ("rename", ("delete read", "create read"), True),
        ("rename", ("delete", "create read"), False),
        ("replace", ("delete", "create read"), False),
        ("rename", ("delete read", "create read execute"), False),
    ],
)
def test_a_file_is_not_linked_or_moved_to_where_more_may_be_done_with_it(
    places: tuple[str, str], act: str, rules: tuple[str, str], allowed: bool, early: bool
) -> None:
    folder = Path(places[0]).parents[1]

    def check() -> object:
        with guard(folder, *rules):
            try:
                (EARLY[act] if early else getattr(os, act))(*places)
            except PermissionError as error:
                return [isinstance(error, OsGuardError), places[0] in str(error)]
        return "done"

    assert confined(check) == ("done" if allowed else [True, True])
    assert os.path.exists(places[1]) is allowed


def test_without_that_a_second_name_would_change_what_may_only_be_read(
    tmp_path: Path, places: tuple[str, str]
) -> None:
    os.link(*places)  # the application's own

    def check() -> object:
        with guard(tmp_path, "read", "create modify"):
            with open(places[1], "w", encoding="utf-8") as file:
                file.write("changed")
            with open(places[0], encoding="utf-8") as file:
                return file.read()

    assert confined(check) == "changed"


def test_an_error_names_both_paths_as_they_were_given(
    tmp_path: Path, places: tuple[str, str]
) -> None:
    (tmp_path / "here/file").mkdir()

    def check() -> object:
        with guard(tmp_path, "read delete", "read create modify"):
            try:
                os.rename(*places)
            except OSError as error:
                return [error.strerror, error.filename, error.filename2]
        return "done"

    assert confined(check) == ["Is a directory", *places]
