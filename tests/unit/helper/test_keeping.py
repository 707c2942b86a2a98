"""The keeper and its upkeep, on layers that only remember."""

from __future__ import annotations

import os
import re
import shutil
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from unit.helper.fakes import (
    FakeLayer,
    FakePeer,
    FakeProbe,
    FakeTree,
    empty,
    nothing_left_behind,
    written,
)

from democrai_osguard_helper import crowd
from democrai_osguard_helper.endpoints import Endpoint, parse_network
from democrai_osguard_helper.journal import Journal
from democrai_osguard_helper.keeper import Keeper, Refusal, uncovered
from democrai_osguard_helper.layers import Attempt
from democrai_osguard_helper.peers import PeerRefused
from democrai_osguard_helper.protocol import Confine, Denial, Notice, Subject
from democrai_osguard_helper.records import Cover
from democrai_osguard_helper.sockets import Open
from democrai_osguard_helper.upkeep import (
    MAX_FAILED_REPAIRS,
    MAX_REPORTED,
    Upkeep,
    pause_after,
)

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
        self.keeper.left_behind = nothing_left_behind
        self.upkeep = Upkeep(
            self.keeper,
            self.tree,
            self.journal,
            lambda uid, message: self.heard.append((uid, message)),
            lambda _names, _address: "a.example.com",
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


@pytest.mark.parametrize(
    ("code", "looks", "goes_to"),
    [
        ("peer_gone", 1, "cgroup.procs"),
        ("rights_changed", 1, "home/cgroup.procs"),
        ("rights_changed", 0, None),
    ],
)
def test_a_peer_that_is_another_by_now_is_put_back_and_leaves_nothing(
    world: World, code: str, looks: int, goes_to: str | None
) -> None:
    peer = FakePeer()
    peer.change, peer.changes_after = code, looks
    (world.folder / "cgroup" / "home").mkdir()
    for place in ("cgroup.procs", "home/cgroup.procs"):
        (world.folder / "cgroup" / place).touch()
    with pytest.raises(PeerRefused) as caught:
        world.confine(peer)
    assert caught.value.code == code
    assert (world.keeper.records, world.tree.boxes(), dict(world.journal.load())) == ({}, (), {})
    for place in ("cgroup.procs", "home/cgroup.procs"):
        moved = (world.folder / "cgroup" / place).read_text()
        assert moved == ("4242" if place == goes_to else "")


@pytest.mark.parametrize("may", [frozenset[str](), frozenset({"device"})], ids=["", "device"])
def test_nobody_leaves_programs_of_others_unless_the_operator_says_so(
    world: World, may: frozenset[str]
) -> None:
    world.keeper.left_behind = lambda old, _new: ("device",) if old.endswith("/home") else ()
    world.keeper.may_leave = may
    if may:
        assert world.confine().name in world.keeper.records
        return
    with pytest.raises(Refusal, match=r"programs of others \(device\)") as caught:
        world.confine()
    assert caught.value.code == "leaves_programs"
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


def test_a_restart_adopts_programs_before_the_firewall_that_leaves_loopback_to_them(
    world: World,
) -> None:
    world.layers = [FakeLayer("firewall"), FakeLayer("bpf")]
    FakeLayer.adoptions.clear()
    world.restart()
    assert FakeLayer.adoptions == ["bpf", "firewall"]


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


def test_a_folder_made_again_is_noticed_while_the_daemon_runs(world: World) -> None:
    box = world.keeper.box(world.confine())
    stays = world.confine()
    empty(box)
    world.upkeep.collect()
    again = world.tree.box(box.name)
    shutil.copytree(world.keeper.box(stays).path, again.path)
    world.upkeep.tick()
    assert not again.exists()
    assert world.codes() == ["stranger"]
    assert list(world.keeper.records) == [stays.name]


def test_a_recorded_box_that_was_made_again_is_ended_and_collected(world: World) -> None:
    record, stays = world.confine(), world.confine()
    box = world.keeper.box(record)
    shutil.move(box.path, world.folder / "old")
    shutil.copytree(world.keeper.box(stays).path, box.path)
    world.upkeep.tick()
    world.upkeep.collect()
    assert not box.exists()
    assert world.codes() == ["stranger"]
    assert list(world.keeper.records) == [stays.name]


@pytest.mark.parametrize("made_again", [True, False])
def test_a_waiting_box_that_somebody_removed_is_forgotten(
    world: World, *, made_again: bool
) -> None:
    record = world.confine()
    world.keeper.boxes.refill()
    (waiting,) = world.keeper.boxes.stock()
    shutil.move(waiting.path, world.folder / "old")
    if made_again:
        shutil.copytree(world.folder / "old", waiting.path)
    world.upkeep.tick()
    assert world.codes() == (["stranger"] if made_again else [])
    assert written(world.keeper.box(record), "freeze") == "0"
    assert world.keeper.boxes.stock() == ()
    assert all(waiting.name not in layer.open for layer in world.layers)
    assert world.confine().name != waiting.name


def test_a_policy_that_was_taken_is_read_again_and_one_that_is_too_long_is_not_taken(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = tuple(Endpoint(parse_network(f"10.0.{n // 256}.{n % 256}")) for n in range(16_385))
    record = world.confine()
    world.keeper.change(record, ONE, (), many)
    world.restart()
    assert world.keeper.records[record.name].addresses == many
    assert world.codes() == []
    monkeypatch.setattr("democrai_osguard_helper.keeper.MAX_POLICY", 16_385)
    with pytest.raises(Refusal) as caught:
        world.keeper.change(world.keeper.records[record.name], TWO, (), many)
    assert caught.value.code == "too_many_endpoints"
    assert world.keeper.records[record.name].endpoints == ONE


def test_drift_is_repaired_and_reported(world: World) -> None:
    record = world.confine()
    world.layers[0].lost.add(record.name)
    world.upkeep.tick()
    assert (world.codes(), world.upkeep.repairs) == (["drift", "repaired"], 1)
    world.upkeep.tick()
    assert world.upkeep.repairs == 1


@pytest.mark.parametrize(("blind", "repairs"), [(1, 0), (2, 1)])
def test_a_look_that_failed_once_is_no_drift(world: World, blind: int, repairs: int) -> None:
    world.confine()
    world.layers[0].blind = blind
    world.upkeep.tick()
    assert world.upkeep.repairs == repairs
    assert world.codes() == (["check_failed", "drift", "repaired"] if repairs else [])


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
                *(record.name, 1000, record.subject, "s1", "192.0.2.9", 80, "tcp"),
                *("a.example.com", 3),
            ),
        )
    ]


@pytest.mark.parametrize(
    ("spent", "pause"), [(0.001, 1.0), (0.5, 10.0), (10.0, 30.0), (100.0, 100.0)]
)
def test_a_slow_look_is_taken_less_often_but_within_bounds(spent: float, pause: float) -> None:
    assert pause_after(spent) == pause


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


def test_sandboxes_together_hold_so_much_and_what_takes_away_is_always_taken(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crowd, "MAX_ENDPOINTS_PER_USER", 3)
    monkeypatch.setattr(crowd, "MAX_ENDPOINTS", 4)
    first, second = world.confine(), world.confine()
    world.keeper.change(first, TWO, (), ())
    with pytest.raises(Refusal, match="too many endpoints together") as caught:
        world.keeper.change(second, TWO, (), ())
    assert caught.value.code == "too_many_endpoints"
    assert world.keeper.records[second.name] == second
    with pytest.raises(Refusal, match="too many endpoints together"):
        world.confine()
    world.confine(FakePeer(uid=1001))
    with pytest.raises(Refusal, match="too many endpoints together"):
        world.confine(FakePeer(uid=1002))
    monkeypatch.setattr(crowd, "MAX_ENDPOINTS", 1)
    world.keeper.change(world.keeper.records[first.name], ONE, (), ())
    assert world.keeper.records[first.name].endpoints == ONE


def test_what_the_daemon_may_hold_fits_into_the_memory_of_its_unit(repo: Path) -> None:
    unit = (repo / "systemd/democrai-osguard-helper.service").read_text("utf-8")
    (limit,) = re.findall(r"^MemoryMax=(\d+)M$", unit, re.MULTILINE)
    # Measured: a thousand bytes in the daemon, two keys in the kernel's trie, and their journal.
    assert int(limit) * 1024 * 1024 >= crowd.MAX_ENDPOINTS * 1300 * 2


def test_a_change_that_is_not_durable_is_taken_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = world.confine()
    sync, left = os.fsync, [2]  # of the change itself, and of the folder that has its new name

    def fails_once(descriptor: int) -> None:
        left[0] -= 1
        if left[0] == 0:
            raise OSError(5, "the disk")
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", fails_once)
    with pytest.raises(Refusal, match="the disk"):
        world.keeper.change(record, TWO, (), ())
    assert dict(world.journal.load()) == {record.name: record}


def test_a_box_that_is_gone_needs_no_freezing(world: World) -> None:
    record = world.confine()
    shutil.rmtree(world.keeper.box(record).path)
    world.keeper.suspend(record)


def test_a_flood_of_one_user_leaves_time_for_others_and_is_told_later(world: World) -> None:
    flood = tuple(Attempt(f"192.0.2.{number}", 80, "tcp", 1) for number in range(64))
    noisy = [world.confine() for _ in range(20)]
    quiet = world.confine(FakePeer(uid=1001))
    layer = world.layers[0]
    layer.tried = {each.name: flood for each in noisy} | {quiet.name: flood[:1]}
    world.upkeep.report()
    told = Counter(uid for uid, message in world.heard if isinstance(message, Denial))
    assert told == {1000: MAX_REPORTED, 1001: 1}
    rounds = 1
    while layer.tried:
        world.upkeep.report()
        rounds += 1
    assert rounds == 5
    assert {each.name: world.keeper.refusals[each.name] for each in noisy} == dict.fromkeys(
        (each.name for each in noisy), 64
    )


def test_what_a_sandbox_was_refused_last_is_told_before_it_is_removed(world: World) -> None:
    gone = world.confine()
    world.layers[0].tried = {gone.name: (Attempt("192.0.2.9", 80, "tcp", 1),)}
    empty(world.keeper.box(gone))
    world.upkeep.collect()
    assert world.keeper.records == {}
    (denial,) = [message for _, message in world.heard if isinstance(message, Denial)]
    assert (denial.sandbox, denial.address) == (gone.name, "192.0.2.9")
