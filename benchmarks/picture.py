"""Draws figures as an SVG that reads on light and dark pages, without any library."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.case import Figure

_ROW, _LEFT, _BAR, _RIGHT, _TOP = 26, 470, 320, 80, 44
_LONGEST = 4.0  # times the baseline: a longer bar would make all others too short to compare
_STYLE = """
  text { font: 13px system-ui, sans-serif; fill: #1f2328 }
  .quiet { fill: #59636e } .bar { fill: #2f81f7 } .over { fill: #d1242f }
  .spread { stroke: #1f2328; stroke-width: 1.5 } .limit { stroke: #1a7f37; stroke-dasharray: 4 3 }
  .one { stroke: #9198a1; stroke-width: 1 } .title { font-weight: 600 }
  @media (prefers-color-scheme: dark) {
    text { fill: #f0f6fc } .quiet { fill: #9198a1 } .spread { stroke: #f0f6fc }
  }
"""


def draw(figures: Sequence[Figure]) -> str:
    """Return the picture: a bar for each ratio, its spread, and the promised limit."""
    shown = [figure for figure in figures if figure.variant != figure.baseline]
    scale = _BAR / _LONGEST
    width, height = _LEFT + _BAR + _RIGHT, _TOP + _ROW * len(shown) + 8
    rows = "".join(_row(place, figure, scale) for place, figure in enumerate(shown))
    one = _LEFT + scale
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" role="img" aria-label="Benchmark ratios, lower is better">'
        f"<style>{_STYLE}</style>"
        f'<text class="title" x="{_LEFT - 8}" y="16" text-anchor="end">this / the baseline</text>'
        f'<text class="title" x="{_LEFT}" y="16">times the baseline; shorter is better</text>'
        f'<text class="quiet" x="{_LEFT}" y="34">dashes: promise; red: not kept; '
        f"thin line: quartiles</text>"
        f'<line class="one" x1="{one}" x2="{one}" y1="{_TOP}" y2="{height - 4}"/>{rows}</svg>\n'
    )


def _row(place: int, figure: Figure, scale: float) -> str:
    top = _TOP + _ROW * place
    kind = "over" if figure.verdict == "not kept" else "bar"
    fits = figure.high <= _LONGEST
    limit = "" if figure.limit is None else _line("limit", figure.limit * scale + _LEFT, top)
    label = escape(f"{figure.case}: {figure.variant} / {figure.baseline}")
    words = f"{figure.ratio:.2f}" if fits else f"… {figure.ratio:.2f}"
    after = max(figure.high, figure.limit or 0) if fits else _LONGEST
    return (
        f'<text x="{_LEFT - 8}" y="{top + 15}" text-anchor="end">{label}</text>'
        f'<rect class="{kind}" x="{_LEFT}" y="{top + 3}" '
        f'width="{min(figure.ratio, _LONGEST) * scale:.1f}" height="16" rx="2"/>{limit}'
        f"{_spread(figure, scale, top + 11) if fits else ''}"
        f'<text x="{after * scale + _LEFT + 8:.1f}" y="{top + 15}">{words}</text>'
    )


def _spread(figure: Figure, scale: float, middle: int) -> str:
    low, high = (each * scale + _LEFT for each in (figure.low, figure.high))
    return f'<line class="spread" x1="{low:.1f}" x2="{high:.1f}" y1="{middle}" y2="{middle}"/>'


def _line(kind: str, where: float, top: int) -> str:
    return f'<line class="{kind}" x1="{where:.1f}" x2="{where:.1f}" y1="{top}" y2="{top + 22}"/>'
