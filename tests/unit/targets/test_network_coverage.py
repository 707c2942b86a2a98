from __future__ import annotations

import pytest
from unit.targets.coverage_vectors import ADDRESS_COVERAGE, NAME_COVERAGE, URL_COVERAGE
from unit.targets.vectors import Coverage, name_of

from democrai_osguard import TargetError, covers

COVERAGE = (*NAME_COVERAGE, *URL_COVERAGE, *ADDRESS_COVERAGE)
FEWEST_VECTORS = 60


@pytest.mark.parametrize("row", COVERAGE, ids=name_of)
def test_a_rule_covers_what_it_names_and_no_more(row: Coverage) -> None:
    assert covers("network", row.rule, row.target) is row.covered


@pytest.mark.parametrize("row", COVERAGE, ids=name_of)
def test_every_target_covers_itself(row: Coverage) -> None:
    assert covers("network", row.rule, row.rule)
    assert covers("network", row.target, row.target)


def test_a_bad_rule_covers_nothing_but_raises() -> None:
    with pytest.raises(TargetError, match="user"):
        covers("network", "https://user@example.com", "https://example.com")


def test_a_bad_target_is_covered_by_nothing_but_raises() -> None:
    with pytest.raises(TargetError, match="user"):
        covers("network", "example.com", "https://example.com@evil.org")


def test_the_table_has_enough_distinct_rows() -> None:
    assert len({(row.rule, row.target) for row in COVERAGE}) == len(COVERAGE) >= FEWEST_VECTORS
