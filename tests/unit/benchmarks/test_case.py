"""The benchmark runner counts and draws what it should."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from benchmarks.case import Case, Figure, measure
from benchmarks.picture import draw


def test_a_variant_that_does_fifty_times_the_work_has_a_ratio_far_above_one() -> None:
    few, many = (lambda: sum(range(100))), (lambda: sum(range(5000)))
    case = Case("loops", ("one", few), {"fifty": many}, calls=50, rounds=5)
    baseline, variant = measure(case)
    assert (baseline.variant, baseline.ratio) == ("one", 1.0)
    assert variant.ratio > 5
    assert variant.low <= variant.ratio <= variant.high


def test_a_promise_is_kept_up_to_its_limit() -> None:
    kept = Figure("case", "b", "a", 1.0, ratio=1.3, low=1.2, high=1.4, limit=1.3)
    broken = Figure("case", "b", "a", 1.0, ratio=1.31, low=1.2, high=1.4, limit=1.3)
    assert (kept.verdict, broken.verdict) == ("kept", "not kept")


def test_the_picture_is_well_formed_and_marks_a_broken_promise() -> None:
    figures = [
        Figure("a < b & c", "x", "y", 1.0, ratio=2.0, low=1.9, high=2.1, limit=1.3),
        Figure("a < b & c", "y", "y", 1.0, ratio=1.0, low=1.0, high=1.0),
    ]
    picture = ET.fromstring(draw(figures))  # noqa: S314 - our own text
    bars = [each for each in picture.iter() if each.tag.endswith("rect")]
    assert [bar.get("class") for bar in bars] == ["over"]


def test_one_long_bar_does_not_shrink_the_others() -> None:
    short = Figure("case", "b", "a", 1.0, ratio=2.0, low=1.9, high=2.1)
    long = Figure("case", "c", "a", 1.0, ratio=40.0, low=30.0, high=50.0)

    def width(figures: list[Figure]) -> str | None:
        picture = ET.fromstring(draw(figures))  # noqa: S314 - our own text
        return next(each for each in picture.iter() if each.tag.endswith("rect")).get("width")

    assert width([short]) == width([short, long])
    assert "… 40.00" in draw([short, long])
