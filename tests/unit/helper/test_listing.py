"""What `list` shows: everything that can still be changed, in answers that fit into a frame."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import pytest
from unit.helper.fakes import FakeLayer, FakePeer, FakeProbe, FakeTree, empty, nothing_left_behind

from democrai_osguard_helper import crowd, protocol
from democrai_osguard_helper.client import Client
from democrai_osguard_helper.desk import Desk
from democrai_osguard_helper.endpoints import Endpoint, NameRule, parse_network
from democrai_osguard_helper.journal import Journal
from democrai_osguard_helper.keeper import Keeper
from democrai_osguard_helper.names import NameBook
from democrai_osguard_helper.protocol import Confine, List, Listed, Subject

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

LONG: Final = tuple(NameRule(f"n{n}." + ("a" * 60 + ".") * 3 + "example.com") for n in range(256))
OTHER: Final = 1001


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    tree, probe = FakeTree(str(tmp_path / "cgroup"), "test"), FakeProbe()
    tree.create()
    any_probe: Any = probe
    keeper = Keeper(tree, [FakeLayer("a")], any_probe, Journal(str(tmp_path / "state")))
    keeper.left_behind = nothing_left_behind
    nothing: Any = None
    book = NameBook(lambda: 0.0, 60)
    return Desk("test", keeper, nothing, book, nothing, {}, lambda _uid: 0, lambda _text: None)


def _confine(desk: Desk, names: tuple[NameRule, ...] = (), uid: int = 1000) -> str:
    peer: Any = FakePeer(uid=uid)
    request = Confine(Subject("module", "demo"), "s1", (), names, "none")
    return desk.keeper.confine(peer, request, ()).name


class _Asking(Client):
    """A client whose helper is the desk itself; what is said goes through frames all the same."""

    def __init__(self, desk: Desk, uid: int = 1000) -> None:
        self._desk, self._peer = desk, FakePeer(uid=uid)
        self.asked = 0

    def _ask(self, request: Any, expected: type[Any]) -> Any:  # noqa: ANN401 - as the client's own
        self.asked += 1
        said: list[protocol.Reply] = []
        peer: Any = self._peer
        self._desk.answer(peer, protocol.parse_request(protocol.dump(request)), said.append)
        reply = protocol.parse_reply(protocol.frame(said[0])[protocol.HEADER :])
        assert isinstance(reply, expected)
        return reply


def test_a_list_that_is_longer_than_a_frame_comes_in_parts(desk: Desk) -> None:
    names = sorted(_confine(desk, LONG) for _ in range(50))
    _confine(desk, uid=OTHER)
    client = _Asking(desk)
    found = client.list().sandboxes
    assert [each.sandbox for each in found] == names
    assert 2 <= client.asked <= 6
    with pytest.raises(protocol.ProtocolViolation):
        protocol.frame(Listed(found))  # the control: in one frame it does not fit
    short = _Asking(desk, OTHER)
    assert (len(short.list().sandboxes), short.asked) == (1, 1)


def test_an_earlier_client_gets_the_first_part() -> None:
    assert protocol.parse_request(b'{"call":"list"}') == List(None)


def test_a_sandbox_that_was_released_is_shown_while_somebody_is_inside(desk: Desk) -> None:
    name = _confine(desk)
    client = _Asking(desk)
    record = desk.keeper.records[name]
    assert not desk.keeper.release(record)
    (shown,) = client.list().sandboxes
    assert (shown.sandbox, shown.populated) == (name, True)
    empty(desk.keeper.box(record))
    assert client.list().sandboxes == ()
    assert os.path.isdir(desk.keeper.box(record).path)


def test_calls_that_wait_for_names_hold_a_bounded_amount(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[Callable[[], None]] = []

    class Silent:
        def ask(self, _uid: int, _names: object, then: Callable[[], None]) -> None:
            waits.append(then)

    monkeypatch.setattr(crowd, "FEW_ENDPOINTS", 1)
    monkeypatch.setattr(crowd, "MAX_WAITING_PER_USER", 2)
    asked: Any = replace(desk, resolving=Silent(), reasons={})  # type: ignore[arg-type]
    places = tuple(Endpoint(parse_network(f"192.0.2.{number}")) for number in range(2))
    heard = list[Any]()

    def ask(uid: int, count: int) -> None:
        request = Confine(
            Subject("module", "demo"), None, places[:count], (NameRule("a.example.com"),), "none"
        )
        asked.answer(FakePeer(uid=uid), request, heard.append)

    ask(1000, 2)
    ask(1001, 2)
    assert heard == []
    ask(1000, 2)
    assert [each.code for each in heard] == ["busy"]
    ask(1000, 1)  # little is always taken
    for then in waits:
        then()
    assert [each.CALL for each in heard[1:]] == ["applied"] * 3
    ask(1000, 2)
    assert len(waits) == 4
