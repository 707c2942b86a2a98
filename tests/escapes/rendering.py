"""Turns what was seen on each kernel into the document. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from escapes.outcome import ALLOWED, OWN, TOGETHER, UNTRIED, Row
from escapes.peers import OURS, PEERS
from escapes.words import FAIR, HEAD, NOTHING, SETTINGS, SUITES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_OPEN = "**open**"
_TITLES = {"landlock": "Landlock", "bpf": "BPF"}


def document(seen: Sequence[dict[str, Any]]) -> str:
    """Return the whole document; the kernel where most was compared is shown in full."""
    full = fullest(seen)
    rows = _rows(full)
    parts = [HEAD, _hosts(seen), _summary(rows), _side_by_side(full, rows), _settings()]
    parts += [_suite(suite, rows, full["host"]["kernel"]) for suite in SUITES]
    if len(seen) > 1:
        parts.append(_other_kernels(seen))
    return "\n".join(parts)


def fullest(seen: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return what was seen on the kernel where most sandboxes were compared."""
    return max(seen, key=lambda one: len(_compared(one)))


def _rows(one: dict[str, Any]) -> list[Row]:
    return [Row(**row) for row in one["rows"]]


def _compared(one: dict[str, Any]) -> list[str]:
    about = one["host"]["peers"]
    return [name for name, words in about.items() if not words.startswith("not compared")]


def _cell(row: Row, verdict: str) -> str:
    if verdict == ALLOWED:
        return _OPEN if row.shown else NOTHING
    if row.suite != "egress check" and (not row.shown or verdict.startswith(UNTRIED)):
        return NOTHING
    return "own" if verdict == OWN else verdict.removeprefix("sandbox_").replace("|", "/")


def _stops(verdict: str) -> bool:
    return verdict != ALLOWED and not verdict.startswith(UNTRIED)


def _table(titles: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    head = [f"| {' | '.join(titles)} |", f"| {' | '.join('---' for _ in titles)} |"]
    return "\n".join([*head, *(f"| {' | '.join(line)} |" for line in lines), ""])


def _hosts(seen: Sequence[dict[str, Any]]) -> str:
    names = [peer.name for peer in PEERS if peer.name != OURS]
    lines = [
        [host["kernel"], str(host["landlock"]), host["python"]]
        + [host["peers"].get(name, "not compared") or NOTHING for name in names]
        for host in (one["host"] for one in seen)
    ]
    return "## Hosts\n\n" + _table(["kernel", "Landlock ABI", "Python", *names], lines)


def _summary(rows: list[Row]) -> str:
    lines = []
    for suite, (title, columns, _) in SUITES.items():
        shown = [row for row in rows if row.suite == suite and row.shown]
        if shown:
            stopped = [f"{_title(layer)} {_stopped(shown, layer)}" for layer in columns.split()]
            lines.append([title, str(len(shown)), ", ".join(stopped)])
    titles = ["", "techniques that work unconfined", "stopped by each layer alone, and together"]
    return "## In figures\n\n" + _table(titles, lines)


def _stopped(rows: list[Row], layer: str) -> int:
    return sum(_stops(row.layers.get(layer, ALLOWED)) for row in rows)


def _title(layer: str) -> str:
    return _TITLES.get(layer, layer)


def _side_by_side(one: dict[str, Any], rows: list[Row]) -> str:
    names = _compared(one)
    tried = [row for row in rows if row.peers and row.shown]
    counts = ["**stopped, or kept to its own**", "", *(_count(tried, name) for name in names)]
    lines = [[row.name, row.who, *(_cell(row, row.peers[name]) for name in names)] for row in tried]
    table = _table(
        ["technique", "as", *names], [["**stopped, or kept to its own**", *counts[1:]], *lines]
    )
    return f"## Side by side\n\n{FAIR}\n{table}"


def _count(tried: list[Row], name: str) -> str:
    stopped = sum(row.peers[name] != ALLOWED for row in tried)
    return f"**{stopped} of {len(tried)}**"


def _settings() -> str:
    blocks = [f"{peer.name}:\n\n```\n{peer.settings}\n```\n" for peer in PEERS]
    return SETTINGS + "\n".join(blocks)


def _suite(suite: str, rows: list[Row], kernel: str) -> str:
    title, columns, words = SUITES[suite]
    layers = columns.split()
    lines = [
        [row.name, row.consequence, row.who, _free(row)]
        + [_cell(row, row.layers.get(layer, UNTRIED)) for layer in layers]
        for row in rows
        if row.suite == suite
    ]
    titles = ["technique", "unconfined it", "as", "unconfined", *map(_title, layers)]
    text = f"{words}\n\n" if words else ""
    return f"## {title}\n\nOn Linux {kernel}. {text}{_table(titles, lines)}"


def _free(row: Row) -> str:
    return "works" if row.shown else row.free or NOTHING


def _other_kernels(seen: Sequence[dict[str, Any]]) -> str:
    """Show how much each kernel stops, and which layers stop the kernel suite by themselves."""
    by_kernel = [{row.name: row for row in _rows(one) if row.suite == "kernel"} for one in seen]
    names = dict.fromkeys(name for rows in by_kernel for name in rows)
    lines = [[name, *(_stoppers(rows.get(name)) for rows in by_kernel)] for name in names]
    titles = ["technique", *(one["host"]["kernel"] for one in seen)]
    alone = _table(titles, lines)
    return f"## On each kernel\n\n{_totals(seen)}\nWhich layers stop it, each alone.\n\n{alone}"


def _totals(seen: Sequence[dict[str, Any]]) -> str:
    """Show, for each kernel, how many of the techniques that work there are stopped."""
    suites = {suite: SUITES[suite][0] for suite in ("kernel", "operation", "egress")}
    lines = [[one["host"]["kernel"], *(_total(_rows(one), suite) for suite in suites)]
             for one in seen]  # fmt: skip
    table = _table(["kernel", *suites.values()], lines)
    return f"Stopped by all layers together, of what works unconfined.\n\n{table}"


def _total(rows: list[Row], suite: str) -> str:
    shown = [row for row in rows if row.suite == suite and row.shown]
    return f"{_stopped(shown, TOGETHER)} of {len(shown)}" if shown else NOTHING


def _stoppers(row: Row | None) -> str:
    if row is None or not row.shown:
        return NOTHING
    if row.layers.get(TOGETHER) == ALLOWED:
        return _OPEN
    alone = [
        _title(layer)
        for layer, verdict in row.layers.items()
        if layer not in {TOGETHER, "guard"} and _stops(verdict)
    ]
    return ", ".join(alone) or "only together"
