"""Folding what was seen into rules: exact where it can be, a folder where it must be."""

from __future__ import annotations

import os
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from democrai_osguard.access import Operation, ResourceType
from democrai_osguard.cli.learn import told
from democrai_osguard.learning.folding import MANY, fold
from democrai_osguard.learning.sightings import NEEDED, Lack, Move, Sighting, Sightings
from democrai_osguard.targets.filesystem import path_covers

Seen = tuple[str, str]  # operation and path


def run(*seen: Seen, network: tuple[Seen, ...] = ()) -> Sightings:
    every = [(ResourceType.FILESYSTEM, *each) for each in seen]
    every += [(ResourceType.NETWORK, *each) for each in network]
    sightings = [
        Sighting(Lack(kind, Operation(operation), path), "call", 1, Counter({"/p": 1}), [1],
                 Counter({path: 1}))
        for kind, operation, path in every
    ]  # fmt: skip
    return Sightings(NEEDED, ("command",), tuple(sightings), (), complete=True)


def rules(*seen: Seen, network: tuple[Seen, ...] = (), **names: str) -> set[Seen]:
    addresses = {address.replace("_", "."): name for address, name in names.items()}
    learnt = fold(run(*seen, network=network), addresses)
    return {(str(rule.operation), rule.target) for rule in learnt.rules}


def test_a_file_stays_a_file() -> None:
    assert rules(("read", "/srv/a/x")) == {("read", "/srv/a/x")}


def test_many_files_of_a_folder_are_the_folder() -> None:
    files = [("read", f"/srv/a/{number}") for number in range(MANY)]
    assert rules(*files) == {("read", "/srv/a")}
    assert rules(*files[:-1]) == set(files[:-1])


@pytest.mark.parametrize("folder", ["/etc", "/usr/bin", "/tmp", "/home/somebody", "/"])
def test_nobody_is_given_a_shared_folder_for_many_files(folder: str) -> None:
    files = {("read", os.path.join(folder, f"f{number}")) for number in range(MANY + 1)}
    assert rules(*files) == files


def test_a_secret_stays_by_itself() -> None:
    files = [("read", f"/srv/a/{number}") for number in range(MANY)]
    assert rules(*files, ("read", "/srv/a/own.key")) == {("read", "/srv/a")}
    marks = [entry.marks for entry in fold(run(*files, ("read", "/srv/a/own.key")), {}).entries]
    assert marks == [("secret",)]


def test_what_the_run_made_opens_the_folder_that_was_there() -> None:
    seen = [("create", "/srv/a/new"), ("create", "/srv/a/new/file"), ("read", "/srv/a/new/file")]
    assert rules(*seen) == {("create", "/srv/a"), ("read", "/srv/a")}


def test_one_new_name_stays_a_name() -> None:
    assert rules(("create", "/srv/a/out")) == {("create", "/srv/a/out")}


def test_a_new_name_that_goes_again_has_another_the_next_time() -> None:
    folder = {("create", "/srv/a"), ("delete", "/srv/a")}
    assert rules(("create", "/srv/a/tmpx7Qz"), ("delete", "/srv/a/tmpx7Qz")) == folder


def test_a_rule_for_everybodys_temporary_files_is_told_how_to_avoid() -> None:
    def advice(folder: str) -> list[str]:
        name = os.path.join(folder, "tmpx7Qz")
        seen = run(("create", name), ("delete", name))
        return [line for line in told(fold(seen, {}), seen) if "TMPDIR" in line]

    assert advice("/tmp") == [
        "  instead of /tmp: set TMPDIR to a folder of its own, and learn again"
    ]
    assert advice("/srv/a") == []


def test_what_was_there_and_is_made_anew_keeps_its_name() -> None:
    seen = {("delete", "/srv/a/out"), ("create", "/srv/a/out")}
    assert rules(*sorted(seen, reverse=True)) == seen


def seen(operation: str, target: str, path: str) -> Sighting:
    lack = Lack(ResourceType.FILESYSTEM, Operation(operation), target)
    return Sighting(lack, "rename", 1, Counter({"/p": 1}), [1], Counter({path: 1}))


def moved(*sightings: Sighting, moves: tuple[Move, ...] = ()) -> set[Seen]:
    whole = Sightings(NEEDED, ("command",), sightings, (), complete=True, moves=moves)
    return {(str(rule.operation), rule.target) for rule in fold(whole, {}).rules}


def test_a_move_into_a_new_folder_opens_the_folder_that_was_there() -> None:
    into = seen("create", "/srv/a/new", "/srv/a/new/x")
    assert moved(seen("create", "/srv/a/new", "/srv/a/new"), into) == {("create", "/srv/a")}


def test_what_is_moved_may_before_what_it_may_there() -> None:
    there = [seen("create", "/srv/b", "/srv/b/x"), seen("read", "/srv/b", "/srv/b")]
    gone = seen("delete", "/srv/a", "/srv/a/x")
    move = Move("/srv/a/x", "/srv/b/x", is_folder=False)
    own = {("create", "/srv/b"), ("read", "/srv/b"), ("delete", "/srv/a")}
    assert moved(*there, gone) == own
    assert moved(*there, gone, moves=(move,)) == own | {("read", "/srv/a/x")}
    folder = Move("/srv/a/x", "/srv/b/x", is_folder=True)
    more = {("read", "/srv/a/x"), ("create", "/srv/a/x")}
    assert moved(*there, gone, moves=(folder,)) == own | more


def test_processes_of_proc_are_left_out() -> None:
    learnt = fold(run(("read", "/proc/123/maps")), {})
    assert (learnt.rules, len(learnt.left_out)) == ((), 1)


def test_a_request_in_http_opens_its_connection() -> None:
    seen = (("connect", "10.0.0.1:80"), ("receive", "http://10.0.0.1:80"))
    assert rules(network=seen) == {("receive", "http://10.0.0.1:80")}


def test_a_name_that_was_looked_up_stands_for_its_address() -> None:
    seen = (("connect", "10.0.0.1:443"), ("connect", "10.0.0.2:443"))
    found = rules(network=seen, **{"10_0_0_1": "a.example"})
    assert found == {("connect", "a.example:443"), ("connect", "10.0.0.2:443")}


NAMES = st.sampled_from(["a", "b", "c", "d", "e"])
PATHS = st.lists(NAMES, min_size=2, max_size=5).map(lambda parts: "/" + "/".join(parts))
OPERATIONS = st.sampled_from(["read", "create", "modify", "delete"])
ACTS = st.lists(st.tuples(OPERATIONS, PATHS), max_size=20)


@given(ACTS)
def test_every_act_is_covered(acts: list[Seen]) -> None:
    found = rules(*acts)
    for operation, path in acts:
        assert any(own == operation and path_covers(target, path) for own, target in found)


def test_a_rule_that_another_covers_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/srv/somebody")
    seen = run(
        ("delete", "/srv/somebody"), ("delete", "/srv/somebody/copy"), ("read", "/srv/a"),
        ("read", "/srv/a/b/c"), ("read", "/srv/ab"),
    )  # fmt: skip
    learnt = fold(seen, {})
    assert {(str(rule.operation), rule.target) for rule in learnt.rules} == {
        ("delete", "/srv/somebody"),
        ("read", "/srv/a"),
        ("read", "/srv/ab"),
    }
    told = {entry.rule.target: str(entry.covered_by or "") for entry in learnt.entries}
    assert told["/srv/somebody/copy"] == "filesystem delete /srv/somebody"
    assert "/srv/a/b/c" not in told
