"""The socket and its clients, with a desk that the test plays."""

from __future__ import annotations

import contextlib
import os
import re
import socket
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from democrai_osguard_helper import crowd, desk, protocol, server
from democrai_osguard_helper.client import Client, HelperRefused
from democrai_osguard_helper.desk import CALLS
from democrai_osguard_helper.loop import Loop
from democrai_osguard_helper.protocol import (
    Events,
    List,
    Listed,
    Listening,
    Listing,
    Notice,
    Status,
    Subject,
)
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
        self.listed = Listed(())

    def answer(
        self, _peer: object, request: protocol.Request, answered: Callable[[protocol.Reply], None]
    ) -> None:
        if isinstance(request, List):
            answered(self.listed)
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


def test_a_flood_of_one_user_pushes_out_no_events_of_another(place: Place) -> None:
    own = os.geteuid()
    mine = Notice(None, "mine", "x")
    place.server.publish(own, mine)
    for _ in range(2 * server.MAX_BACKLOG):
        place.server.publish(own + 1, Notice(None, "flood", "x"))
    for uid in range(own + 2, own + server.MAX_UNHEARD):
        place.server.publish(uid, Notice(None, "another", "x"))
    with place.client(protocol.frame(Events())) as talk:
        assert (_reply(talk), _reply(talk)) == (Listening(), mine)


@pytest.mark.parametrize("together", [False, True], ids=["strangers", "of one user"])
def test_many_subordinate_users_push_out_no_events_of_another(place: Place, together: bool) -> None:
    own = os.geteuid()
    mine = Notice(None, "mine", "x")
    if together:
        place.server.account_of = lambda uid: own + 1 if uid > own else uid
    place.server.publish(own, mine)
    for uid in range(own + 1, own + 2 * server.MAX_UNHEARD):
        place.server.publish(uid, Notice(None, "another", "x"))
    with place.client(protocol.frame(Events())) as talk:
        assert _reply(talk) == Listening()
        assert (_reply(talk) == mine) is together


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
    monkeypatch.setattr(crowd, "MAX_CLIENTS", 2)
    monkeypatch.setattr(crowd, "ROOM_FOR_ROOT", 0)
    with place.client(), place.client(), place.client() as third:
        reply = _reply(third)
        assert isinstance(reply, protocol.Refused)
        assert (reply.code, third.recv(1)) == ("busy", b"")


def test_clients_together_hold_a_bounded_amount(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crowd, "MAX_BUFFERED", 1000)
    monkeypatch.setattr(crowd, "SMALL", 100)
    with place.client((2000).to_bytes(4, "big") + bytes(1500)) as talk:
        reply = _reply(talk)
        assert isinstance(reply, protocol.Refused)
        assert reply.code == "busy"


def test_frames_that_never_end_keep_nobody_from_asking(place: Place) -> None:
    part = protocol.MAX_FRAME.to_bytes(4, "big") + bytes(protocol.MAX_FRAME - 4)
    with contextlib.ExitStack() as stack:
        for _ in range(16):
            talk = stack.enter_context(place.client())
            talk.settimeout(0)
            sent = 0
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                while sent < len(part):
                    with contextlib.suppress(BlockingIOError):
                        sent += talk.send(part[sent : sent + 60_000])
                    place.turn()
        with place.client(LIST) as asks:
            assert _reply(asks) == Listed(())


def _taken(*wishes: tuple[int, int]) -> Counter[int]:
    """Let users come one after the other, each for so many connections."""
    clients = Counter[int]()
    for uid, wanted in wishes:
        for _ in range(wanted):
            clients[uid] += crowd.has_place(uid, clients)
    return clients


def test_users_with_many_connections_leave_places_for_others_and_for_root() -> None:
    clients = _taken((1, 500), (2, 500), (3, 5), (4, 500), (0, 500))
    assert clients == {1: 128, 2: 16, 3: 5, 4: 16, 0: 91}
    crowded = _taken(*((uid, 500) for uid in range(1, 30)), (0, 500))
    assert crowded[0] == crowd.ROOM_FOR_ROOT
    assert crowded.total() == crowd.MAX_CLIENTS
    assert _taken((0, 500)) == {0: crowd.MAX_CLIENTS_PER_USER}


def test_what_a_user_leaves_unfinished_is_bounded_for_that_user() -> None:
    large, most = protocol.MAX_FRAME, crowd.MAX_BUFFERED_PER_USER
    assert crowd.may_wait(large, 1, {1: most})
    assert not crowd.may_wait(large, 1, {1: most + 1})
    assert crowd.may_wait(large, 2, {1: most + 1, 2: large})
    assert not crowd.may_wait(large, 2, {1: crowd.MAX_BUFFERED, 2: large})
    assert crowd.may_wait(crowd.SMALL, 2, {1: crowd.MAX_BUFFERED, 2: crowd.SMALL})


def test_every_call_is_in_the_table_with_who_and_why() -> None:
    assert set(CALLS) == set(protocol.REQUESTS)
    assert all(row.who and row.safe_because for row in CALLS.values())
    assert CALLS[protocol.Confine].then is desk.Then.NOTHING


def test_the_readme_gives_the_same_reason_for_each_call(repo: Path) -> None:
    text = (repo / "helper/README.md").read_text()
    rows = dict(re.findall(r"^\| `(\w+)` \| .* \| .* \| (.*) \|$", text, re.MULTILINE))
    assert rows == {request.CALL: row.safe_because for request, row in CALLS.items()}


def test_who_is_turned_away_hears_why_whenever_it_asks(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crowd, "MAX_CLIENTS_PER_USER", 0)
    with Client(place.path) as client:
        place.turn()  # the helper has hung up before the client says a word
        with pytest.raises(HelperRefused) as caught:
            client.status()
    assert caught.value.code == "busy"


def test_who_asks_and_does_not_read_holds_one_answer_and_gets_all_in_the_end(place: Place) -> None:
    entry = Listing(
        "0" * 12, 0, Subject("module", "demo"), "x" * 200, 0, 0, 0, (), (), False, "held", None
    )
    place.desk.listed = Listed((entry,) * 2000)
    answer = len(protocol.frame(place.desk.listed))
    with place.client(LIST * 500) as talk:
        for _ in range(20):
            place.turn()
        (connection,) = place.server._clients  # noqa: SLF001 - what is kept for the client
        assert len(connection._outgoing) <= answer  # noqa: SLF001
        place.desk.listed = Listed(())
        talk.settimeout(0)
        got, size = 0, len(protocol.frame(place.desk.listed))
        while got < answer + 499 * size:
            place.turn()
            with contextlib.suppress(BlockingIOError):
                got += len(talk.recv(1 << 20))
    assert got == answer + 499 * size
