"""Sandboxes and what their names stand for, on layers that only remember."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from unit.helper.fakes import FakePeer
from unit.helper.test_keeping import World

from democrai_osguard_helper.answers import Answer
from democrai_osguard_helper.endpoints import Endpoint, NameRule, parse_network
from democrai_osguard_helper.fields import MAX_NAMES
from democrai_osguard_helper.names import NameBook
from democrai_osguard_helper.protocol import Confine, Subject
from democrai_osguard_helper.refreshing import Refreshing

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from democrai_osguard_helper.records import Record

PUBLIC = parse_network("93.184.216.34")


class CountingBook(NameBook):
    """A book that counts how often somebody asks what a sandbox is open for."""

    asked = 0

    def standing(self, record: Record, rules: Sequence[NameRule]) -> tuple[Endpoint, ...]:
        self.asked += 1
        return super().standing(record, rules)


@dataclass
class Named(World):
    """Sandboxes with names."""

    book: CountingBook = field(default_factory=lambda: CountingBook(lambda: 1000.0, 60))

    def begin(self) -> None:
        super().begin()
        self.refreshing = Refreshing(
            self.keeper, self.book, lambda uid, message: self.heard.append((uid, message))
        )

    def confine_with(self, names: Sequence[str], uid: int = 1000) -> Record:
        rules = tuple(NameRule(name, 443) for name in names)
        wanted = Confine(Subject("module", "demo"), None, (), rules, "full")
        peer: Any = FakePeer(uid=uid)
        return self.keeper.confine(peer, wanted, ())

    def open_in(self, record: Record) -> tuple[Endpoint, ...]:
        return self.layers[0].open[record.name]


@pytest.fixture
def world(tmp_path: Path) -> Named:
    return Named(tmp_path)


def _answer(name: str, *places: str) -> Answer:
    return Answer(name, tuple((parse_network(place), 5.0) for place in places))


def test_an_answer_reaches_the_sandboxes_that_use_its_name(world: Named) -> None:
    mine, other = world.confine_with(["a.example.com"]), world.confine_with(["b.example.com"])
    world.refreshing.due()
    world.refreshing.heard(_answer("a.example.com", str(PUBLIC)), ())
    world.refreshing.catch_up()
    assert world.open_in(mine) == (Endpoint(PUBLIC, 443),)
    assert world.open_in(other) == ()


def test_many_names_with_many_refused_addresses_cost_one_change_and_one_line_each(
    world: Named,
) -> None:
    names = [f"n{number}.example.com" for number in range(MAX_NAMES)]
    world.confine_with(names)
    world.refreshing.due()
    for turn in range(3):  # others each time: what is said of a name stays the same
        for number, name in enumerate(names):
            inner = [f"10.{number}.{turn}.{i}" for i in range(100)]
            world.refreshing.heard(_answer(name, *inner), ())
        assert world.book.asked == turn
        world.refreshing.catch_up()
        world.refreshing.catch_up()
        assert world.book.asked == turn + 1
        said = Counter(message.text.partition(":")[0] for _, message in world.heard)
        assert said == dict.fromkeys(names, 1)


def test_what_is_wrong_with_a_name_is_said_again_when_it_is_something_else(world: Named) -> None:
    world.confine_with(["a.example.com"])
    world.refreshing.due()
    for answer in (
        _answer("a.example.com", "10.0.0.1"),
        _answer("a.example.com", "10.0.0.2", "10.0.0.3"),
        Answer("a.example.com", (), "no such name"),
    ):
        world.refreshing.heard(answer, ())
        world.refreshing.catch_up()
    assert [message.text for _, message in world.heard] == [
        "a.example.com: 10.0.0.1 is private",
        "a.example.com: no such name",
    ]


def test_the_sandboxes_of_one_user_do_not_hold_up_another_s(world: Named) -> None:
    for _ in range(20):
        world.confine_with(["a.example.com"])
    other = world.confine_with(["a.example.com"], uid=1001)
    world.refreshing.due()
    world.refreshing.heard(_answer("a.example.com", str(PUBLIC)), ())
    assert world.refreshing.catch_up()
    assert world.refreshing.catch_up()
    assert world.open_in(other) == (Endpoint(PUBLIC, 443),)
    assert [world.refreshing.catch_up() for _ in range(19)] == [True] * 18 + [False]


def test_subordinate_users_take_turns_as_one(world: Named) -> None:
    world.keeper.account_of = lambda uid: 1000 if uid >= 100000 else uid
    for number in range(20):
        world.confine_with(["a.example.com"], uid=100000 + number)
    other = world.confine_with(["a.example.com"], uid=1001)
    assert {asker.uid for asker in world.refreshing.due()} == {1000, 1001}
    world.refreshing.heard(_answer("a.example.com", str(PUBLIC)), ())
    world.refreshing.catch_up()
    world.refreshing.catch_up()
    assert world.open_in(other) == (Endpoint(PUBLIC, 443),)
