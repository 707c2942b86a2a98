"""The keeper and its upkeep, on layers that only remember."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from unit.helper.fakes import FakeLayer, FakePeer, FakeProbe, FakeTree, empty, written

from democrai_osguard_helper.endpoints import Endpoint, parse_network
from democrai_osguard_helper.journal import Journal
from democrai_osguard_helper.keeper import Keeper, Refusal, uncovered
from democrai_osguard_helper.layers import Attempt
from democrai_osguard_helper.protocol import Confine, Denial, Notice, Subject
from democrai_osguard_helper.records import Cover
from democrai_osguard_helper.sockets import Open
from democrai_osguard_helper.upkeep import MAX_FAILED_REPAIRS, Upkeep

if TYPE_CHECKING:
    from pathlib import Path

    from democrai_osguard_helper.records import Record

ONE = (Endpoint(parse_network("192.0.2.1"), 443),)
TWO = (*ONE, Endpoint(parse_network("192.0.2.2"), 443))
REQUEST = Confine(Subject("module", "demo"), "s1", ONE, (), "full")


@dataclass
class World:
    folder: Path
    layers: list[FakeLayer] = field(default_factory=lambda: [FakeLayer("a"), FakeLayer("b")])
    probe: FakeProbe = field(default_factory=FakeProbe)
    heard: list[tuple[int | None, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.tree = FakeTree(str(self.folder / "cgroup"), "test")
        self.tree.create()
        self.begin()

    def begin(self) -> None:
        """Start a keeper on whatever is there."""
        self.journal = Journal(str(self.folder / "state"))
        probe: Any = self.probe
        self.keeper = Keeper(self.tree, self.layers, probe, self.journal)
        self.upkeep = Upkeep(
            self.keeper,
            self.tree,
            self.journal,
            lambda uid, message: self.heard.append((uid, message)),
            lambda _address: "a.example.com",
        )

    def restart(self) -> None:
        self.journal.close()
        self.begin()
        self.upkeep.start()

    def confine(self, peer: FakePeer | None = None) -> Record:
        fake: Any = peer or FakePeer()
        return self.keeper.confine(fake, REQUEST, ())

    def codes(self) -> list[str]:
        return [message.code for _, message in self.heard if isinstance(message, Notice)]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_a_peer_is_moved_into_a_box_that_every_layer_holds(world: World) -> None:
    record = world.confine()
    box = world.keeper.box(record)
    assert written(box, "procs") == "4242"
    assert [layer.open[box.name] for layer in world.layers] == [ONE, ONE]
    assert dict(world.journal.load()) == {record.name: record}


def test_a_peer_that_ends_while_it_is_moved_leaves_nothing(world: World) -> None:
    peer = FakePeer()
    peer.ended = True
    with open(f"{world.tree.mount}/cgroup.procs", "w", encoding="ascii"):
        pass
    with pytest.raises(Refusal, match="ended while it was moved"):
        world.confine(peer)
    assert (world.keeper.records, world.tree.boxes(), dict(world.journal.load())) == ({}, (), {})


def test_a_box_that_does_not_hold_is_given_to_nobody(world: World) -> None:
    world.probe.wrong = "a forbidden connect was not refused: connected"
    with pytest.raises(Refusal, match="a: a forbidden connect was not refused") as caught:
        world.confine()
    assert caught.value.code == "layer_failed"
    assert (world.tree.boxes(), world.layers[0].open) == ((), {})


def test_a_layer_that_fails_while_filling_leaves_nothing(world: World) -> None:
    world.keeper.boxes.refill()
    world.layers[1].broken = True
    with pytest.raises(Refusal, match="broken by the test"):
        world.confine()
    assert (world.keeper.records, world.tree.boxes(), dict(world.journal.load())) == ({}, (), {})


def test_a_change_that_fails_goes_back_or_freezes(world: World) -> None:
    record = world.confine()
    world.layers[1].broken = True
    with pytest.raises(Refusal, match="broken by the test"):
        world.keeper.change(record, TWO, (), ())
    assert world.keeper.records[record.name] == record
    assert dict(world.journal.load()) == {record.name: record}
    assert written(world.keeper.box(record), "freeze") == "1"


def test_a_stranger_does_not_learn_whether_a_sandbox_exists(world: World) -> None:
    record = world.confine()
    assert world.keeper.owned(record.name, 1000) == world.keeper.owned(record.name, 0) == record
    texts = set()
    for name, uid in ((record.name, 1001), ("0" * 12, 1001)):
        with pytest.raises(Refusal) as caught:
            world.keeper.owned(name, uid)
        texts.add((caught.value.code, str(caught.value)))
    assert len(texts) == 1


def test_a_user_has_room_for_so_many(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("democrai_osguard_helper.keeper.MAX_PER_USER", 1)
    world.confine()
    with pytest.raises(Refusal, match="1 of 1 sandboxes"):
        world.confine()
    world.confine(FakePeer(uid=1001))


def test_an_empty_sandbox_is_collected_and_a_full_one_is_not(world: World) -> None:
    full, gone = world.confine(), world.confine()
    empty(world.keeper.box(gone))
    world.upkeep.collect()
    assert list(world.keeper.records) == [full.name]
    assert [box.name for box in world.tree.boxes()] == [full.name]
    assert gone.name not in world.layers[0].open


def test_a_restart_adopts_collects_and_ends_what_is_not_known(world: World) -> None:
    kept = world.confine()
    stranger = world.tree.new_box()
    world.layers = [FakeLayer("a"), FakeLayer("b")]
    world.restart()
    assert world.keeper.records == {kept.name: kept}
    assert [layer.open for layer in world.layers] == [{kept.name: ONE}] * 2
    assert written_or_gone(world, stranger.name) == "gone"
    assert world.codes() == ["stranger"]


def written_or_gone(world: World, name: str) -> str:
    box = world.tree.box(name)
    return written(box, "kill") if box.exists() else "gone"


def test_a_folder_made_again_is_not_the_recorded_one(world: World) -> None:
    record = world.confine()
    box = world.keeper.box(record)
    shutil.move(box.path, world.folder / "old")
    os.mkdir(box.path)
    empty(box)
    world.restart()
    assert world.keeper.records == {}
    assert dict(world.journal.load()) == {}


def test_drift_is_repaired_and_reported(world: World) -> None:
    record = world.confine()
    world.layers[0].lost.add(record.name)
    world.upkeep.tick()
    assert (world.codes(), world.upkeep.repairs) == (["drift", "repaired"], 1)
    world.upkeep.tick()
    assert world.upkeep.repairs == 1


def test_what_one_layer_cannot_hold_runs_on_under_the_other(world: World) -> None:
    record = world.confine()
    world.layers[0].lost.add(record.name)
    world.layers[0].broken = True
    world.upkeep.tick()
    assert written(world.keeper.box(record), "freeze") == "0"
    assert world.codes() == ["drift", "repair_failed"]


def test_what_no_layer_holds_is_frozen_then_killed(world: World) -> None:
    record = world.confine()
    box = world.keeper.box(record)
    for layer in world.layers:
        layer.lost.add(record.name)
        layer.broken = True
    world.upkeep.tick()
    assert (written(box, "freeze"), written(box, "kill")) == ("1", "")
    for _ in range(MAX_FAILED_REPAIRS):
        world.upkeep.tick()
    assert written(box, "kill") == "1"
    assert world.codes()[-1] == "killed"


def test_what_is_repaired_in_time_runs_again(world: World) -> None:
    record = world.confine()
    for layer in world.layers:
        layer.lost.add(record.name)
        layer.broken = True
    world.upkeep.tick()
    for layer in world.layers:
        layer.broken = False
    world.upkeep.tick()
    assert written(world.keeper.box(record), "freeze") == "0"
    assert world.codes()[-1] == "thawed"


def test_a_refused_attempt_becomes_an_event_of_its_owner(world: World) -> None:
    record = world.confine()
    trial = Attempt("255.255.255.255", 80, "tcp", 1)  # the launcher's own, and no question
    world.layers[0].tried[record.name] = (Attempt("192.0.2.9", 80, "tcp", 3), trial)
    world.upkeep.report()
    assert world.heard == [
        (
            1000,
            Denial(
                *(record.name, record.subject, "s1", "192.0.2.9", 80, "tcp"), "a.example.com", 3
            ),
        )
    ]


def _open_socket(local: str, port: int, remote: str, other: int, state: int = 1) -> Open:
    near, far = parse_network(local).packed, parse_network(remote).packed
    return Open(2, "tcp", state, b"", near, port, far, other, 1)


def test_only_connections_that_nothing_covers_are_ended() -> None:
    covered = _open_socket("10.0.0.1", 5000, "192.0.2.1", 443)
    gone = _open_socket("10.0.0.1", 5001, "192.0.2.2", 443)
    listener = _open_socket("127.0.0.1", 80, "0.0.0.0", 0, state=10)  # noqa: S104 - of a dump
    own = _open_socket("127.0.0.1", 5002, "127.0.0.1", 80)
    accepted = _open_socket("127.0.0.1", 80, "127.0.0.1", 5002)
    strange = _open_socket("127.0.0.1", 5003, "127.0.0.1", 5432)
    items = [covered, gone, listener, own, accepted, strange]
    assert uncovered(items, Cover(ONE)) == [gone, strange]
