"""What a benchmark is, and how it is measured.

Machines are noisy and differ, so a figure is a ratio: each round times every variant right after
the other, and the ratio of that round is kept. Medians and the spread of rounds are reported.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    Act = Callable[[], object]


@dataclass(frozen=True)
class Case:
    """One question: how much each variant costs beside the baseline."""

    name: str
    baseline: tuple[str, Act]
    variants: dict[str, Act]
    limit: float | None = None  # the ratio that the product promises at most
    calls: int = 1000  # in one timing
    rounds: int = 15


@dataclass(frozen=True)
class Figure:
    """What was seen of one variant."""

    case: str
    variant: str
    baseline: str
    microseconds: float  # median over the rounds, of one call
    ratio: float
    low: float  # quartiles of the ratio
    high: float
    limit: float | None = None
    rounds: int = field(default=0)

    @property
    def verdict(self) -> str:
        """Say whether the promise was kept in this run."""
        if self.limit is None:
            return ""
        return "kept" if self.ratio <= self.limit else "not kept"


def measure(case: Case) -> list[Figure]:
    """Run a case and return a figure for its baseline and for each variant."""
    name, act = case.baseline
    acts = {name: act, **case.variants}
    for each in acts.values():
        _time(each, max(1, case.calls // 10))  # warm caches of all, before any counts
    rounds = [
        {key: _time(each, case.calls) for key, each in acts.items()} for _ in range(case.rounds)
    ]
    return [_figure(case, variant, rounds) for variant in acts]


def _time(act: Act, calls: int) -> float:
    repeat = range(calls)
    start = time.perf_counter()
    for _ in repeat:
        act()
    return (time.perf_counter() - start) / calls


def _figure(case: Case, variant: str, rounds: list[dict[str, float]]) -> Figure:
    baseline = case.baseline[0]
    ratios = [each[variant] / each[baseline] for each in rounds]
    low, middle, high = statistics.quantiles(ratios, n=4)
    microseconds = statistics.median(each[variant] for each in rounds) * 1e6
    limit = case.limit if variant != baseline else None
    return Figure(case.name, variant, baseline, microseconds, middle, low, high, limit, len(rounds))
