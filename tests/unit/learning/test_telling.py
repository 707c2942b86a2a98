"""The order in which refusals are told: nothing is lost, and what matters least comes last."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from democrai_osguard.access import Operation, ResourceType
from democrai_osguard.learning.sentences import sentences
from democrai_osguard.learning.sightings import REFUSED, Lack, Sighting, Sightings, read_sightings
from democrai_osguard.learning.telling import in_order

if TYPE_CHECKING:
    from pathlib import Path

FILESYSTEM, NETWORK = ResourceType.FILESYSTEM, ResourceType.NETWORK
READ, MODIFY, CONNECT = Operation.READ, Operation.MODIFY, Operation.CONNECT


def sighting(lack: Lack | None, pid: int = 7) -> Sighting:
    paths = Counter([lack.target]) if lack and lack.target else Counter[str]()
    return Sighting(lack, "openat", 1, Counter({"/bin/sh": 1}), [pid], paths)


def refused(target: str | None, operation: Operation = READ, pid: int = 7) -> Sighting:
    return sighting(Lack(FILESYSTEM, operation, target), pid)


def run_of(*seen: Sighting, command: str = "true", access: tuple[Lack, ...] = ()) -> Sightings:
    return Sightings(REFUSED, ("sh", "-c", command), seen, (), complete=True, access=access)


HOST = sighting(Lack(NETWORK, CONNECT, "192.0.2.1:443"))
CALL = sighting(None)
USERS, GIT, NAMES = refused("/etc/passwd"), refused("/root/.gitconfig"), refused(None, MODIFY)
ASKED, BESIDE, OTHER = refused("/srv/a/x.py"), refused("/srv/b/c"), refused("/opt/y")
RULES = (Lack(FILESYSTEM, READ, "/srv/b/d"), Lack(NETWORK, CONNECT, "192.0.2.7:1"))


def test_the_network_comes_first_and_what_programs_do_without_last() -> None:
    run = run_of(
        USERS, NAMES, OTHER, GIT, CALL, BESIDE, ASKED, HOST, command="cat ./a/x.py", access=RULES
    )
    assert in_order(run) == ([HOST, BESIDE, ASKED, OTHER, CALL], [USERS, NAMES, GIT])


def test_a_look_up_that_the_command_was_asked_for_is_none_to_do_without() -> None:
    for command in ("cat /etc/passwd", "python3 -c \"open('/etc/passwd')\"", "grep x /etc"):
        assert in_order(run_of(OTHER, USERS, command=command)) == ([USERS, OTHER], [])


def test_a_path_is_near_a_rule_for_another_operation_or_for_what_is_beside_it() -> None:
    path = refused("/opt/q/y")
    for target, is_near in {
        "/opt": True,
        "/opt/q/z": True,
        "/opt/q/y/z": False,
        "/op": False,
    }.items():
        run = run_of(CALL, path, access=(Lack(FILESYSTEM, MODIFY, target),))
        assert in_order(run)[0] == ([path, CALL] if is_near else [CALL, path]), target
    shared = run_of(CALL, refused("/etc/hostname"), access=(Lack(FILESYSTEM, READ, "/etc/fstab"),))
    assert in_order(shared)[0][0] is CALL


def test_a_socket_of_what_looks_nobody_up_is_told_among_the_others() -> None:
    own = refused(None, MODIFY, pid=8)
    assert in_order(run_of(USERS, own)) == ([own], [USERS])


def test_what_is_written_or_a_secret_is_not_done_without() -> None:
    for each in (refused("/etc/passwd", Operation.DELETE), refused("/etc/shadow")):
        assert in_order(run_of(each)) == ([each], [])


@given(st.lists(st.sampled_from([HOST, CALL, USERS, GIT, NAMES, ASKED, BESIDE, OTHER])))
def test_nothing_is_lost(seen: list[Sighting]) -> None:
    telling, done_without = in_order(run_of(*seen, command="cat a/x.py", access=RULES))
    assert sorted(map(id, telling + done_without)) == sorted(map(id, seen))


def test_a_line_stands_above_what_most_programs_do_without() -> None:
    said = list(sentences(run_of(USERS, OTHER)))
    assert said[0] == "2 things were refused to: sh -c true"
    line = said.index("Most programs do without what follows.")
    assert ["/opt/y" in "".join(said[:line]), "/etc/passwd" in "".join(said[line:])] == [True, True]
    assert "/etc/passwd" not in "".join(said[:line])
    assert not any("Most programs" in each for each in sentences(run_of(OTHER)))


def test_a_trace_says_which_rules_the_command_had(tmp_path: Path) -> None:
    rule = {"resource_type": "filesystem", "operation": "read", "target": "/srv/b/d"}
    head = {"format": 1, "mode": "refused", "command": ["true"], "access": [rule]}
    (tmp_path / "trace").write_text(json.dumps(head) + "\n")
    assert read_sightings(tmp_path / "trace").access == RULES[:1]
