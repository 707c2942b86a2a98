"""Draws figures as an SVG that reads on light and dark pages, without any library."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.case import Figure

_ROW, _LEFT, _BAR, _RIGHT = 26, 470, 320, 60
_STYLE = """
  text { font: 13px system-ui, sans-serif; fill: #1f2328 }
  .quiet { fill: #59636e } .bar { fill: #2f81f7 } .over { fill: #d1242f }
  .spread { stroke: #1f2328; stroke-width: 1.5 } .limit { stroke: #1a7f37; stroke-dasharray: 4 3 }
  @media (prefers-color-scheme: dark) {
    text { fill: #f0f6fc } .quiet { fill: #9198a1 } .spread { stroke: #f0f6fc }
  }
"""


def draw(figures: Sequence[Figure]) -> str:
    """Return the picture: a bar for each ratio, its spread, and the promised limit."""
    shown = [figure for figure in figures if figure.variant != figure.baseline]
    widest = max([1.0, *(max(figure.high, figure.limit or 0) for figure in shown)])
    width, height = _LEFT + _BAR + _RIGHT, _ROW * (len(shown) + 1) + 12
    rows = "".join(_row(place, figure, _BAR / widest) for place, figure in enumerate(shown))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" role="img" aria-label="Benchmark ratios, lower is better">'
        f"<style>{_STYLE}</style>"
        f'<text class="quiet" x="{_LEFT}" y="16">times the baseline; line: quartiles, dashes: '
        f"promise</text>{rows}</svg>\n"
    )


def _row(place: int, figure: Figure, scale: float) -> str:
    top = _ROW * (place + 1)
    middle = top + 11
    kind = "over" if figure.verdict == "not kept" else "bar"
    ends = figure.low * scale + _LEFT, figure.high * scale + _LEFT
    limit = "" if figure.limit is None else _line("limit", figure.limit * scale + _LEFT, top)
    label = escape(f"{figure.case}: {figure.variant} / {figure.baseline}")
    return (
        f'<text x="{_LEFT - 8}" y="{top + 15}" text-anchor="end">{label}</text>'
        f'<rect class="{kind}" x="{_LEFT}" y="{top + 3}" width="{figure.ratio * scale:.1f}" '
        f'height="16" rx="2"/>{limit}'
        f'<line class="spread" x1="{ends[0]:.1f}" x2="{ends[1]:.1f}" y1="{middle}" y2="{middle}"/>'
        f'<text x="{max(ends[1], (figure.limit or 0) * scale + _LEFT) + 8:.1f}" y="{top + 15}">'
        f"{figure.ratio:.2f}</text>"
    )


def _line(kind: str, where: float, top: int) -> str:
    return f'<line class="{kind}" x1="{where:.1f}" x2="{where:.1f}" y1="{top}" y2="{top + 22}"/>'
