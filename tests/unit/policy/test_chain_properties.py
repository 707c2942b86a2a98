from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st
from unit.policy.generated import (
    Asked,
    Level,
    any_covers,
    chain_allows,
    chain_of,
    levels,
    narrowing_levels,
    requests,
    rules,
)

from democrai_osguard import Allow, Policy, Rule, Subject, decide
from democrai_osguard.access import AccessRequest

if TYPE_CHECKING:
    from democrai_osguard.policy.chain import Chain

Path = list[Level]


def allows(chain: Chain, what: Asked) -> bool:
    request = AccessRequest(Subject.parse("module:asks"), *what)
    return isinstance(decide(request, Policy(chain)), Allow)


@given(levels, requests)
@settings(max_examples=250, deadline=None)
def test_a_chain_allows_what_the_contract_says(path: Path, asks: list[Asked]) -> None:
    chain = chain_of(path)
    for what in asks:
        assert allows(chain, what) is chain_allows(path, what)


@given(levels, requests)
@settings(max_examples=250, deadline=None)
def test_the_flat_list_agrees_with_the_chain(path: Path, asks: list[Asked]) -> None:
    chain = chain_of(path)
    flat = chain.flat()
    for what in asks:
        assert any_covers(flat, what) is allows(chain, what)


@given(levels, requests)
@settings(max_examples=150, deadline=None)
def test_a_grant_names_a_rule_of_its_subject_that_covers(path: Path, asks: list[Asked]) -> None:
    chain = chain_of(path)
    for what in asks:
        grant = chain.find(*what)
        if grant is not None:
            assert any_covers((grant.rule,), what)
            assert (grant.subject, True) in {
                (level.subject, grant.rule in (level.rules or ())) for level in path
            }


@given(levels, narrowing_levels, requests)
@settings(max_examples=200, deadline=None)
def test_narrowing_never_adds_access(path: Path, asset: Level, asks: list[Asked]) -> None:
    outer = [Level(Subject.parse("module:outer"), ()), *path]
    inner = [*outer, asset]
    for what in asks:
        assert allows(chain_of(outer), what) or not allows(chain_of(inner), what)


@given(levels, st.integers(0, 4), rules, requests)
@settings(max_examples=200, deadline=None)
def test_adding_a_rule_never_removes_access(
    path: Path, place: int, new: Rule, asks: list[Asked]
) -> None:
    level = path[place % len(path)]
    if level.rules is None:  # an asset that starts to declare narrows, and may
        return
    wider = list(path)
    wider[place % len(path)] = Level(level.subject, (*level.rules, new))
    for what in asks:
        assert allows(chain_of(wider), what) or not allows(chain_of(path), what)


@given(levels, levels, requests)
@settings(max_examples=150, deadline=None)
def test_an_mcp_server_inherits_nothing(one: Path, other: Path, asks: list[Asked]) -> None:
    server = Level(Subject.parse("mcp:server"), (Rule(*asks[0]),))
    for what in asks:
        answers = {allows(chain_of([*path, server]), what) for path in (one, other)}
        assert answers == {any_covers(server.rules or (), what)}


@given(levels, requests)
@settings(max_examples=150, deadline=None)
def test_a_flat_list_is_a_chain_of_its_own(path: Path, asks: list[Asked]) -> None:
    flat = chain_of(path).flat()
    again = chain_of([Level(Subject.parse("module:child"), flat)])
    for what in asks:
        assert allows(again, what) is allows(chain_of(path), what)
