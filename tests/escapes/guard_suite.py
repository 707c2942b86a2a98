"""The corpus of `tests/guard`: under the guard alone, and under the launcher's layers without it.

Called as `python guard_suite.py FOLDER` it prints the rows as JSON, since the guard cannot be taken
out of a process again.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

_HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(_HERE.parent), str(_HERE.parent.parent)]

from escapes.consequences import of_guard_technique  # noqa: E402 - found by the line above
from escapes.outcome import ALLOWED, Row  # noqa: E402
from escapes.single_layers import KERNEL_LAYERS, confine  # noqa: E402
from guard import laboratory  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from guard.technique import Technique
    from kernel.conftest import Grant

GUARD = "guard"


def guard_rows() -> list[Row]:
    """Return each technique of the corpus, tried in a process of its own."""
    with tempfile.TemporaryDirectory(prefix="corpus-") as folder:
        command = [sys.executable, __file__, folder]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    lines = (line for line in done.stdout.splitlines() if line.startswith('{"suite"'))
    return [Row(**json.loads(line)) for line in lines]


def _rows(folder: Path) -> Iterator[Row]:
    common = laboratory.prepare(folder)
    for technique in laboratory.TECHNIQUES:
        if sys.version_info < technique.least:
            continue
        tried = {
            how: _verdict(technique, folder / f"{technique.name}-{how}", common, how)
            for how in ("free", GUARD, *KERNEL_LAYERS)
        }
        free = tried.pop("free")
        yield Row(GUARD, technique.name, "user", of_guard_technique(technique), free, tried)


def _verdict(technique: Technique, place: Path, common: dict[str, Any], how: str) -> str:
    place.mkdir()
    names = laboratory.build(place) | common
    enter = _confinement(how) if how in KERNEL_LAYERS else None
    report = laboratory.perform(technique, names, guarded=how == GUARD, confine=enter)
    if report["won"]:
        return ALLOWED
    return _word(report["stopped"])


def _confinement(layer: str) -> Callable[[dict[str, Any], int], object]:
    return lambda space, writer: confine(layer, _grants(space["IN"]), [writer])


def _grants(inside: str) -> list[Grant]:
    """Return what a Python program gets: its folder, the interpreter and its libraries."""
    own: list[Grant] = [(op, inside) for op in ("read", "create", "modify", "delete")]
    libraries = {sys.prefix, sys.base_prefix, *sysconfig.get_paths().values(), *sys.path}
    return own + [("read", path) for path in sorted(libraries) if os.path.isdir(path)]


def _word(stopped: list[str]) -> str:
    """Return what stopped it in one word: the code of a refusal, or the kind of an error."""
    if not stopped:
        return "nothing got"
    kind, _, text = stopped[0].partition(": ")
    code = text.partition(":")[0]
    return code if code.startswith("sandbox_") else kind


if __name__ == "__main__":
    for found in _rows(Path(sys.argv[1])):
        sys.stdout.write(json.dumps(found.document()) + "\n")
        sys.stdout.flush()
