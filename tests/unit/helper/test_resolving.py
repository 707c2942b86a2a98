"""What the daemon asks the resolver for, when, and what becomes of names without an answer."""

from __future__ import annotations

import json
import socket
from typing import TYPE_CHECKING

import pytest

from democrai_osguard_helper.loop import Loop
from democrai_osguard_helper.resolver import WORKERS
from democrai_osguard_helper.resolving import CALLS, PATIENCE, ROUNDS, Resolving
from democrai_osguard_helper.turns import Asker

if TYPE_CHECKING:
    from collections.abc import Iterator

    from democrai_osguard_helper.answers import Answer

DEAD = tuple(f"dead{number}.example.com" for number in range(200))


class Scene:
    """The daemon's side, and the resolver's end of the conversation in the test's hands."""

    def __init__(self) -> None:
        self.time = 0.0
        self.loop = Loop(lambda: self.time)
        self.heard: list[tuple[str, str]] = []
        self.theirs: socket.socket | None = None
        self.resolving = Resolving(self.loop, self._hear, self._start)
        self.done: list[str] = []

    def asked(self) -> list[str]:
        """Return the names that the resolver was asked for since the last look."""
        if self.theirs is None:
            return []
        try:
            text = self.theirs.recv(1 << 20)
        except BlockingIOError:
            return []
        return [name for line in text.splitlines() for name in json.loads(line)]

    def answer(self, name: str, error: str = "") -> None:
        assert self.theirs is not None
        found = [] if error else [["93.184.216.34", 60]]
        reply = {"name": name, "error": error, "addresses": found, "resolvers": ["192.0.2.53"]}
        self.theirs.sendall(json.dumps(reply).encode() + b"\n")
        self.loop.turn(0)

    def wait(self, seconds: float) -> None:
        self.time += seconds
        self.loop.turn(0)

    def ask(self, names: tuple[str, ...], label: str, uid: int = 1) -> None:
        self.resolving.ask(uid, names, lambda: self.done.append(label))

    def _hear(self, answer: Answer, _resolvers: object) -> None:
        self.heard.append((answer.name, answer.error))

    def _start(self) -> tuple[socket.socket, None]:
        ours, self.theirs = socket.socketpair()
        self.theirs.settimeout(0)
        return ours, None


@pytest.fixture
def scene() -> Iterator[Scene]:
    made = Scene()
    yield made
    made.resolving.close()
    if made.theirs is not None:
        made.theirs.close()
    made.loop.close()


def test_a_good_name_is_asked_for_beside_many_that_nobody_answers(scene: Scene) -> None:
    scene.ask(DEAD, "dead")
    scene.resolving.refresh({Asker(1, "box"): DEAD, Asker(2, "other"): DEAD[::-1]})
    assert len(scene.asked()) < CALLS.all + ROUNDS.all
    scene.ask(("good.example.com",), "good")
    assert scene.asked() == ["good.example.com"]
    scene.answer("good.example.com")
    assert scene.done == ["good"]


def test_a_name_that_two_want_is_asked_for_once_and_each_waits_for_itself(scene: Scene) -> None:
    scene.ask(("a.example.com",), "first")
    scene.wait(PATIENCE - 1)
    scene.ask(("a.example.com",), "second")
    assert scene.asked() == ["a.example.com"]
    scene.wait(1)
    assert (scene.done, scene.heard) == (["first"], [])  # the second still waits
    scene.answer("a.example.com")
    assert scene.done == ["first", "second"]


def test_a_name_in_a_long_queue_is_asked_for_in_the_turn_of_whoever_wants_it(scene: Scene) -> None:
    scene.ask((*DEAD, "zz.example.com"), "dead")
    scene.asked()
    scene.ask(("zz.example.com",), "good", uid=2)
    assert scene.asked() == ["zz.example.com"]


def test_what_nobody_waits_for_any_more_is_not_asked(scene: Scene) -> None:
    scene.ask(DEAD, "dead")
    first = scene.asked()
    assert len(first) == CALLS.of_asker
    scene.wait(PATIENCE)
    assert scene.done == ["dead"]
    assert len(scene.heard) == len(DEAD)
    for name in first:
        scene.answer(name, "no name server answered")
    assert scene.asked() == []


def test_a_name_that_is_asked_for_is_not_asked_again_before_its_answer(scene: Scene) -> None:
    box = Asker(1, "box")
    scene.resolving.refresh({box: ["a.example.com"]})
    scene.resolving.refresh({box: ["a.example.com"]})
    assert scene.asked() == ["a.example.com"]
    scene.answer("a.example.com", "server failure")
    scene.resolving.refresh({box: ["a.example.com"]})
    assert scene.asked() == ["a.example.com"]


def test_the_names_of_a_sandbox_that_ended_are_dropped(scene: Scene) -> None:
    scene.resolving.refresh({Asker(1, "box"): DEAD})
    first = scene.asked()
    scene.resolving.refresh({})
    for name in first:
        scene.answer(name, "no name server answered")
    assert scene.asked() == []


def test_more_than_may_wait_is_refused_at_once(scene: Scene) -> None:
    for number in range(CALLS.waiting // 100 + 1):
        scene.ask(tuple(f"n{number}-{i}.example.com" for i in range(100)), str(number))
    scene.ask(("late.example.com",), "late")
    assert "late" in scene.done
    assert ("late.example.com", "too many names wait to be asked for") in scene.heard
    scene.ask(("other.example.com",), "other", uid=2)
    assert "other.example.com" in scene.asked()


def test_when_the_resolver_ends_everybody_goes_on(scene: Scene) -> None:
    scene.ask(("a.example.com", "b.example.com"), "one")
    assert scene.theirs is not None
    scene.theirs.close()
    scene.loop.turn(0)
    assert scene.done == ["one"]
    scene.ask(("a.example.com",), "two")
    assert scene.asked() == ["a.example.com"]


def test_the_resolver_asks_for_as_many_as_it_is_given() -> None:
    assert CALLS.all + ROUNDS.all == WORKERS
