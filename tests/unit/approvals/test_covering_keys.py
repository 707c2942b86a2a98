"""Keys find whatever covers a target, in steps that depend on the target alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from unit.policy.generated import Asked, asked

from democrai_osguard import Rule, Subject
from democrai_osguard.access import Operation, ResourceType
from democrai_osguard.approvals.covering import request_keys, rule_key
from democrai_osguard.policy.ruleset import RuleSet

MODULE = Subject.parse("module:m")


@given(asked, asked)
def test_a_rule_that_covers_is_filed_where_the_request_looks(rule: Asked, what: Asked) -> None:
    filed = Rule(*rule)
    matches = (rule.resource_type, rule.operation) == (what.resource_type, what.operation)
    for wide in (False, True):
        if matches and RuleSet([filed], wide=wide).find(*what) is not None:
            assert rule_key(MODULE, filed) in request_keys(MODULE, *what)


@pytest.mark.parametrize(
    ("target", "most"),
    [
        ("https://a.b.c.example.com/v1/a/b/c?d=e", 60),
        ("192.0.2.7:443", 8),
        ("[2001:db8::7]:443", 20),
        ("localhost:80", 22),
    ],
)
def test_a_network_target_is_looked_up_in_few_places(target: str, most: int) -> None:
    keys = request_keys(MODULE, ResourceType.NETWORK, Operation.RECEIVE, target)
    assert len(keys) <= most


def test_subjects_and_operations_share_no_key() -> None:
    what = (ResourceType.FILESYSTEM, "/srv")
    keys = [
        request_keys(Subject.parse(subject), what[0], operation, what[1])
        for subject in ("module:m", "module:n", "engine:m")
        for operation in (Operation.READ, Operation.MODIFY)
    ]
    flat = [key for each in keys for key in each]
    assert len(flat) == len(set(flat))


@pytest.mark.parametrize("depth", [10, 2000])
def test_a_deep_path_costs_one_key_for_each_folder(depth: int) -> None:
    path = "/a" * depth
    keys = request_keys(MODULE, ResourceType.FILESYSTEM, Operation.READ, path)
    assert len(keys) == depth + 1
