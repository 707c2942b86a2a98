"""What cannot be resolved safely is covered by no rule, and that is an answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from democrai_osguard import TargetError, covers

if TYPE_CHECKING:
    from pathlib import Path


def test_climbing_through_what_does_not_exist_is_covered_by_nothing() -> None:
    assert not covers("filesystem", "/", "/no/such/../place")


def test_a_loop_of_links_is_covered_by_nothing(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    assert not covers("filesystem", str(tmp_path), str(tmp_path / "loop"))


def test_a_rule_that_cannot_be_resolved_is_an_error() -> None:
    with pytest.raises(TargetError):
        covers("filesystem", "/no/such/../place", "/srv")
