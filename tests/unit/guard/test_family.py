"""Who belongs to a child process, told from parents, groups and sessions."""

from __future__ import annotations

from democrai_osguard.guard.sealed.family import members

# number: parent, group, session, and when it began
APPLICATION, CHILD = 10, 20
FOUND: dict[int, tuple[int, ...]] = {
    1: (0, 1, 1, 0),
    APPLICATION: (1, 10, 10, 5),
    CHILD: (APPLICATION, 10, 10, 6),
    21: (CHILD, 21, 21, 7),  # leads a session
    22: (21, 21, 21, 8),
    23: (1, 21, 21, 9),  # its parent has ended; it is in the session still
    24: (23, 24, 24, 9),
    25: (1, 25, 25, 9),  # has left all of them
    30: (APPLICATION, 10, 10, 20),  # another child; it began when the numbers of ours were used
}


def test_children_sessions_and_groups_belong_to_it_and_nobody_else() -> None:
    assert members(CHILD, FOUND) == {CHILD, 21, 22, 23, 24}


def test_a_leaf_is_alone() -> None:
    assert members(30, FOUND) == {30}
    assert members(99, {}) == {99}
