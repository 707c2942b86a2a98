"""What the broker believes of a caller's umask without asking: never more than the calls say."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from democrai_osguard_launcher.standing import Standing

if TYPE_CHECKING:
    import pytest


def test_everybody_has_the_first_umask_until_one_is_changed() -> None:
    known = Standing(0o077)
    assert [known.mask_of(thread) for thread in (1, 2)] == [0o077, 0o077]
    known.mask_changes(1, 0o1022)
    assert [known.mask_of(thread) for thread in (1, 2)] == [0o022, None]


def test_nothing_is_remembered_while_a_change_may_be_under_way() -> None:
    known = Standing(0o077)
    known.mask_changes(1, 0o022)
    known.learn(2, 0o077)  # it shares its umask with the first, which has not got that far
    assert known.mask_of(2) is None
    known.mask_of(1)  # the first waits in another call: its change has happened
    known.learn(2, 0o022)
    assert known.mask_of(2) == 0o022


def test_of_two_changes_at_once_neither_is_believed() -> None:
    known = Standing(0o077)
    known.mask_changes(1, 0o022)
    known.mask_changes(2, 0o002)
    assert [known.mask_of(thread) for thread in (1, 2)] == [None, None]


def test_a_change_makes_the_others_unknown() -> None:
    known = Standing(0)
    known.mask_changes(1, 0o022)
    known.mask_of(1)
    known.learn(2, 0o027)
    known.mask_changes(1, 0o002)
    assert known.mask_of(2) is None


MANY, GONE = 300, 10**7  # beyond every number that a thread can have


def test_threads_that_are_gone_change_nothing_any_more() -> None:
    known = Standing(0)
    for thread in range(GONE, GONE + MANY):
        known.mask_changes(thread, 0o022)
    for thread in range(GONE + MANY - 60, GONE + MANY):
        known.mask_of(thread)
    known.learn(1, 0o027)
    assert known.mask_of(1) == 0o027


def test_beyond_its_limit_it_believes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os.path, "exists", lambda _: True)
    known = Standing(0)
    for thread in range(GONE, GONE + MANY):
        known.mask_changes(thread, 0o022)
    for thread in range(GONE, GONE + MANY):
        known.mask_of(thread)
    known.learn(1, 0o027)
    assert known.mask_of(1) is None


def test_a_thread_s_number_is_not_trusted_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    known = Standing(0)
    known.mask_changes(1, 0o022)
    assert known.mask_of(1) == 0o022
    later = time.monotonic() + 2
    monkeypatch.setattr(time, "monotonic", lambda: later)
    assert known.mask_of(1) is None
