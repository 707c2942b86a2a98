from __future__ import annotations

import pytest
from unit.targets.coverage_vectors import ADDRESS_COVERAGE, NAME_COVERAGE, URL_COVERAGE
from unit.targets.vectors import Coverage, name_of

from democrai_osguard import Rule, normalize_target
from democrai_osguard.access import Operation, ResourceType
from democrai_osguard.policy.ruleset import RuleSet

COVERAGE = (*NAME_COVERAGE, *URL_COVERAGE, *ADDRESS_COVERAGE)
# Rules for other places: a set of many must answer as a set of one.
OTHERS = ("other.org", "*.other.org", "198.51.100.0/24", "https://other.org/v1", "other.org:443")


def connect(target: str) -> Rule:
    return Rule(ResourceType.NETWORK, Operation.CONNECT, normalize_target("network", target))


@pytest.mark.parametrize("row", COVERAGE, ids=name_of)
def test_a_set_of_rules_answers_as_covers_does(row: Coverage) -> None:
    rule, asked = connect(row.rule), normalize_target("network", row.target)
    for own in ([rule], [*map(connect, OTHERS), rule], [rule, *map(connect, OTHERS)]):
        found = RuleSet(own).find(ResourceType.NETWORK, Operation.CONNECT, asked)
        assert found == (rule if row.covered else None)


@pytest.mark.parametrize("row", COVERAGE, ids=name_of)
def test_a_set_of_rules_answers_for_its_operation_only(row: Coverage) -> None:
    asked = normalize_target("network", row.target)
    own = RuleSet([connect(row.rule)])
    assert own.find(ResourceType.NETWORK, Operation.SEND, asked) is None


def test_a_path_and_a_program_of_one_name_are_not_mixed_up() -> None:
    own = RuleSet([Rule(ResourceType.SYSTEM_DEPENDENCY, Operation.EXECUTE, "git")])
    assert own.find(ResourceType.FILESYSTEM, Operation.EXECUTE, "/git") is None
    own = RuleSet([Rule(ResourceType.FILESYSTEM, Operation.EXECUTE, "/")])
    assert own.find(ResourceType.SYSTEM_DEPENDENCY, Operation.EXECUTE, "git") is None


def test_an_empty_set_covers_nothing() -> None:
    assert RuleSet().find(ResourceType.FILESYSTEM, Operation.READ, "/") is None
