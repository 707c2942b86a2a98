"""Subordinate users, and for whom they count."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest
from unit.helper.fakes import FakePeer
from unit.helper.test_keeping import World

from democrai_osguard_helper import keeper
from democrai_osguard_helper.accounts import Accounts, Given, ranges
from democrai_osguard_helper.keeper import Refusal

if TYPE_CHECKING:
    from pathlib import Path

USERS = "root:x:0:0::/root:/bin/sh\nada:x:1000:1000::/:/bin/sh\nbob:x:1001:1001::/:/bin/sh\n"
SUBUID = """# who was given whom
ada:100000:65536
1001:200000:65536
ada:300000:10

root:400000:65536
root:500000:65536
faraway:600000:65536
ada:no:1
ada:1
"""


@pytest.mark.parametrize(
    ("uid", "account"),
    [
        (1000, 1000), (100000, 1000), (165535, 1000), (165536, 165536), (300009, 1000),
        (200001, 1001), (0, 0),
        # A container's user is not root to us, and a stranger's number is not known here.
        (400005, 400000), (500005, 400000), (600001, 600000), (99999, 99999),
    ],
)  # fmt: skip
def test_a_subordinate_user_counts_for_who_was_given_it(
    tmp_path: Path, uid: int, account: int
) -> None:
    (tmp_path / "subuid").write_text(SUBUID)
    (tmp_path / "passwd").write_text(USERS)
    accounts = Accounts(str(tmp_path / "subuid"), str(tmp_path / "passwd"))
    assert accounts.of(uid) == account


def test_lines_that_say_nothing_are_passed_over() -> None:
    assert ranges("ada:1\n:::\nada:-1:5\n\0", "ada\n:::\n") == ()
    assert ranges("ada:5:1", "") == (Given(5, 1, 5),)
    assert ranges("root:0:65536", USERS) == (Given(0, 65536, 1),)


def test_a_host_without_the_file_knows_none(tmp_path: Path) -> None:
    assert Accounts(str(tmp_path / "no"), str(tmp_path / "neither")).of(100000) == 100000


def test_another_file_counts_once_it_is_looked_at(tmp_path: Path) -> None:
    path = tmp_path / "subuid"
    path.write_text("1000:100000:1\n")
    accounts = Accounts(str(path), os.devnull)
    assert accounts.of(100000) == 1000
    path.write_text("1001:100000:10\n")
    accounts.refresh()
    assert accounts.of(100000) == 1001


def test_many_users_of_one_have_as_many_sandboxes_as_that_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeper, "MAX_PER_USER", 2)
    world = World(tmp_path)

    def confine(uid: int) -> str:
        peer: Any = FakePeer(uid=uid)
        try:
            return str(world.confine(peer).uid)
        except Refusal as error:
            return error.code

    assert [confine(100000 + number) for number in range(3)] == ["100000", "100001", "100002"]
    world.keeper.account_of = lambda uid: 1000 if uid >= 100000 else uid
    assert [confine(uid) for uid in (100003, 1000, 1001)] == [*["too_many_sandboxes"] * 2, "1001"]
