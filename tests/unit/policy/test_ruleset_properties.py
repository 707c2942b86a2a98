from __future__ import annotations

from hypothesis import given, settings
from unit.policy.generated import Asked, any_covers, requests, rule_lists, rules

from democrai_osguard import Rule
from democrai_osguard.policy.intersection import intersect, smallest
from democrai_osguard.policy.ruleset import RuleSet

RuleList = tuple[Rule, ...]


@given(rule_lists, requests)
@settings(max_examples=250, deadline=None)
def test_finding_agrees_with_looking_at_each_rule(own: RuleList, asks: list[Asked]) -> None:
    compiled = RuleSet(own)
    for what in asks:
        found = compiled.find(*what)
        assert (found is not None) is any_covers(own, what)
        assert found is None or (found in own and any_covers((found,), what))


@given(rule_lists, rules, requests)
@settings(max_examples=200, deadline=None)
def test_adding_a_rule_never_removes_access(own: RuleList, new: Rule, asks: list[Asked]) -> None:
    before, after = RuleSet(own), RuleSet((*own, new))
    for what in asks:
        assert before.find(*what) is None or after.find(*what) is not None


@given(rule_lists, requests)
@settings(max_examples=200, deadline=None)
def test_denials_cover_at_least_what_grants_cover(own: RuleList, asks: list[Asked]) -> None:
    narrow, wide = RuleSet(own), RuleSet(own, wide=True)
    for what in asks:
        assert narrow.find(*what) is None or wide.find(*what) is not None


@given(rule_lists, rule_lists, requests)
@settings(max_examples=200, deadline=None)
def test_an_intersection_covers_what_both_cover(
    ours: RuleList, theirs: RuleList, asks: list[Asked]
) -> None:
    shared = intersect(ours, theirs)
    for what in asks:
        both = any_covers(ours, what) and any_covers(theirs, what)
        assert any_covers(shared, what) is both


@given(rule_lists, requests)
@settings(max_examples=200, deadline=None)
def test_the_smallest_list_covers_the_same(own: RuleList, asks: list[Asked]) -> None:
    few = smallest(own)
    assert set(few) <= set(own)
    for what in (*asks, *(Asked(r.resource_type, r.operation, r.target) for r in own)):
        assert any_covers(few, what) is any_covers(own, what)


@given(rule_lists)
@settings(max_examples=200, deadline=None)
def test_the_smallest_list_has_no_rule_that_another_covers(own: RuleList) -> None:
    few = smallest(own)
    for rule in few:
        others = tuple(other for other in few if other != rule)
        assert not any_covers(others, Asked(rule.resource_type, rule.operation, rule.target))
