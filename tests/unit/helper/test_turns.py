"""However many names somebody has that nobody answers for, others get theirs."""

from __future__ import annotations

from democrai_osguard_helper.turns import Asker, Shares, Turns

ONE, TWO, THREE = Asker(1, "a"), Asker(1, "b"), Asker(2, "c")
SHARES = Shares(all=6, of_user=4, of_asker=3, waiting=10)


def _all(turns: Turns) -> list[str]:
    taken = []
    while name := turns.take(lambda _name: True):
        taken.append(name)
    return taken


def test_nobody_has_more_than_their_share() -> None:
    turns = Turns(SHARES)
    turns.want(ONE, [f"a{i}" for i in range(5)])
    assert _all(turns) == ["a0", "a1", "a2"]
    turns.want(TWO, [f"b{i}" for i in range(5)])
    assert _all(turns) == ["b0"]
    turns.want(THREE, [f"c{i}" for i in range(5)])
    assert _all(turns) == ["c0", "c1"]
    turns.done("a0")
    assert _all(turns) == ["a3"]  # the user has a place again, and it is the first one's turn


def test_users_take_turns_and_so_do_the_askers_of_one() -> None:
    turns = Turns(Shares(all=100, of_user=100, of_asker=100, waiting=100))
    for asker, letter in ((ONE, "a"), (TWO, "b"), (THREE, "c")):
        turns.want(asker, [f"{letter}{i}" for i in range(2)])
    assert _all(turns) == ["a0", "c0", "b0", "c1", "a1", "b1"]


def test_only_so_many_may_wait() -> None:
    turns = Turns(SHARES)
    assert turns.want(ONE, [f"a{i}" for i in range(8)]) == ()
    assert turns.want(TWO, ["b0", "b1", "b2"]) == ("b2",)
    assert turns.want(THREE, ["c0"]) == ()


def test_what_nobody_wants_any_more_is_passed_over() -> None:
    turns = Turns(SHARES)
    turns.want(ONE, ["a0", "a1"])
    turns.want(TWO, ["b0"])
    turns.forget(TWO)
    assert turns.take(lambda name: name != "a0") == "a1"
    assert turns.take(lambda _name: True) is None


def test_a_new_round_replaces_the_last_one_and_keeps_its_order() -> None:
    turns = Turns(SHARES)
    turns.replace({ONE: ["a0", "a1"], THREE: ["c0", "c1"]})
    assert turns.take(lambda _name: True) == "a0"
    turns.replace({ONE: ["a1"], THREE: ["c0", "c1"], TWO: ["b0"]})
    assert turns.take(lambda _name: True) == "c0"
    turns.replace({})
    assert turns.take(lambda _name: True) is None
