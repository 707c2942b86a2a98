"""The socket and its clients, with a desk that the test plays."""

from __future__ import annotations

import re
import socket
from typing import TYPE_CHECKING, Any

import pytest

from democrai_osguard_helper import desk, protocol, server
from democrai_osguard_helper.desk import CALLS
from democrai_osguard_helper.loop import Loop
from democrai_osguard_helper.protocol import Events, List, Listed, Listening, Notice, Status
from democrai_osguard_helper.server import Server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


class Clock:
    time = 1000.0

    def __call__(self) -> float:
        return self.time


class FakeDesk:
    """Answers lists at once, and everything else when the test says so."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[protocol.Reply], None]] = []

    def answer(
        self, _peer: object, request: protocol.Request, answered: Callable[[protocol.Reply], None]
    ) -> None:
        if isinstance(request, List):
            answered(Listed(()))
        elif isinstance(request, Events):
            answered(Listening())
        else:
            self.waiting.append(answered)


class Place:
    def __init__(self, folder: Path) -> None:
        self.clock = Clock()
        self.loop = Loop(self.clock)
        self.path = str(folder / "s")
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(self.path)
        listener.listen(64)
        self.desk = FakeDesk()
        fake: Any = self.desk
        self.server = Server(self.loop, listener, lambda _server: fake)

    def client(self, data: bytes = b"") -> socket.socket:
        talk = socket.socket(socket.AF_UNIX)
        talk.settimeout(1)
        talk.connect(self.path)
        talk.send(data) if data else None
        self.turn()
        return talk

    def turn(self) -> None:
        for _ in range(4):
            self.loop.turn(0)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    made.server.close()
    made.loop.close()


def _reply(talk: socket.socket) -> protocol.Reply:
    size = int.from_bytes(talk.recv(4), "big")
    return protocol.parse_reply(talk.recv(size))


LIST = protocol.frame(List())
STATUS = protocol.frame(Status())


def test_calls_are_answered_one_after_the_other(place: Place) -> None:
    with place.client(LIST + LIST) as talk:
        assert _reply(talk) == _reply(talk) == Listed(())


def test_a_frame_may_come_byte_by_byte(place: Place) -> None:
    with place.client() as talk:
        for byte in LIST:
            talk.send(bytes([byte]))
            place.turn()
        assert _reply(talk) == Listed(())


def test_a_second_call_before_the_answer_ends_the_connection(place: Place) -> None:
    with place.client(STATUS) as talk:
        talk.send(LIST)
        place.turn()
        reply = _reply(talk)
        assert isinstance(reply, protocol.Refused)
        assert (reply.code, talk.recv(1)) == ("protocol_violation", b"")
    place.desk.waiting[0](Listed(()))  # the answer comes too late for anybody


def test_a_slow_frame_and_an_idle_client_are_dropped(place: Place) -> None:
    with place.client(LIST[:3]) as slow, place.client() as idle:
        place.clock.time += server.FRAME_SECONDS + 1
        place.turn()
        assert slow.recv(1) == b""
        idle.settimeout(0)
        with pytest.raises(BlockingIOError):
            idle.recv(1)
        place.clock.time += server.IDLE_SECONDS
        place.turn()
        idle.settimeout(1)
        assert idle.recv(1) == b""


def test_a_client_that_waits_for_its_answer_is_not_late(place: Place) -> None:
    with place.client(STATUS) as talk:
        place.clock.time += 10 * server.IDLE_SECONDS
        place.turn()
        place.desk.waiting[0](Listed(()))
        assert _reply(talk) == Listed(())


def test_events_reach_their_owner_and_wait_for_one(place: Place) -> None:
    mine, others = Notice(None, "mine", "x"), Notice(None, "others", "x")
    with place.client(LIST) as talk:
        uid = next(iter(place.server._clients)).peer.uid  # noqa: SLF001 - who the test runs as
        _reply(talk)
    place.turn()
    place.server.publish(uid, mine)
    with place.client(protocol.frame(Events())) as talk:
        assert _reply(talk) == Listening()
        assert _reply(talk) == mine
        place.server.publish(uid + 1, others) if uid else None
        place.server.publish(None, mine)
        assert _reply(talk) == mine


def test_a_listener_that_does_not_read_loses_events_and_is_told(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "MAX_QUEUED", 2000)
    big = Notice(None, "big", "x" * 900)
    with place.client(protocol.frame(Events())) as talk:
        assert _reply(talk) == Listening()
        for _ in range(2000):
            place.server.publish(None, big)
        heard: list[protocol.Reply] = []
        while len(heard) < 2000 and (not heard or heard[-1] == big):
            place.turn()
            try:
                talk.settimeout(0.05)
                heard.append(_reply(talk))
            except TimeoutError:
                place.server.publish(None, big)
    last = heard[-1]
    assert isinstance(last, Notice)
    assert last.code == "events_lost"


def test_a_listener_has_nothing_more_to_say(place: Place) -> None:
    with place.client(protocol.frame(Events())) as talk:
        assert _reply(talk) == Listening()
        talk.send(LIST)
        place.turn()
        assert talk.recv(1) == b""


def test_too_many_clients_are_turned_away(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "MAX_CLIENTS", 2)
    with place.client(), place.client(), place.client() as third:
        reply = _reply(third)
        assert isinstance(reply, protocol.Refused)
        assert (reply.code, third.recv(1)) == ("busy", b"")


def test_clients_together_hold_a_bounded_amount(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "MAX_BUFFERED", 1000)
    with place.client((2000).to_bytes(4, "big") + bytes(1500)) as talk:
        reply = _reply(talk)
        assert isinstance(reply, protocol.Refused)


def test_every_call_is_in_the_table_with_who_and_why() -> None:
    assert set(CALLS) == set(protocol.REQUESTS)
    assert all(row.who and row.safe_because for row in CALLS.values())
    assert CALLS[protocol.Confine].then is desk.Then.NOTHING


def test_the_readme_gives_the_same_reason_for_each_call(repo: Path) -> None:
    text = (repo / "helper/README.md").read_text()
    rows = dict(re.findall(r"^\| `(\w+)` \| .* \| .* \| (.*) \|$", text, re.MULTILINE))
    assert rows == {request.CALL: row.safe_because for request, row in CALLS.items()}
