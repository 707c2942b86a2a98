"""`make bench`: measures every case, prints a table, writes JSON, the table and the picture.

`python -m benchmarks.run NAME…` measures only the cases of the files that are named.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
import platform
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.case import Figure, measure
from benchmarks.picture import draw

if TYPE_CHECKING:
    from collections.abc import Sequence

FILES = ("decision", "approvals", "launch")
_HERE = Path(__file__).parent
_DOCS = _HERE.parent / "docs"


def main(names: Sequence[str]) -> None:
    """Measure, print and write."""
    figures: list[Figure] = []
    for name in names or FILES:
        for case in importlib.import_module(f"benchmarks.{name}").cases():
            print(f"→ {case.name}", flush=True)
            figures += measure(case)
    table = _table(figures)
    print(f"\n{table}")
    _write(figures, table, complete=not names)


def _table(figures: Sequence[Figure]) -> str:
    rows = [
        "| case | variant | median of a call | ratio (quartiles) | promise |",
        "| --- | --- | --- | --- | --- |",
    ]
    for figure in figures:
        ratio = f"{figure.ratio:.2f} ({figure.low:.2f} to {figure.high:.2f})"
        if figure.variant == figure.baseline:
            ratio = "baseline"
        promise = "" if figure.limit is None else f"at most {figure.limit:.2f}: {figure.verdict}"
        time = f"{figure.microseconds:.2f} µs"
        rows.append(f"| {figure.case} | {figure.variant} | {time} | {ratio} | {promise} |")
    return "\n".join(rows)


def _write(figures: Sequence[Figure], table: str, *, complete: bool) -> None:
    host = {
        "python": platform.python_version(),
        "kernel": platform.release(),
        "cores": os.cpu_count(),
    }
    record = {"host": host, "figures": [dataclasses.asdict(figure) for figure in figures]}
    results = _HERE / "results"
    results.mkdir(exist_ok=True)
    (results / "latest.json").write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    if not complete:
        return  # a part of the cases is no picture of the whole
    title = f"Python {host['python']}, Linux {host['kernel']}, {host['cores']} cores"
    notes = (_HERE / "notes.md").read_text(encoding="utf-8")
    page = f"# Benchmarks\n\nWritten by `make bench` on {title}.\n\n{table}\n\n{notes}"
    (_DOCS / "benchmarks.md").write_text(page, encoding="utf-8")
    (_DOCS / "benchmarks.svg").write_text(draw(figures), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
