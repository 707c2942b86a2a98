"""Folding what was seen into rules: exact where it can be, a folder where it must be."""

from __future__ import annotations

import os
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from democrai_osguard.access import Operation, ResourceType
from democrai_osguard.learning.folding import MANY, fold
from democrai_osguard.learning.sightings import NEEDED, Lack, Sighting, Sightings
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
