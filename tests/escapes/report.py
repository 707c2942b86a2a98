"""Tries every technique on this host, keeps what was seen as JSON, and writes the document anew.

Called as `python report.py RESULTS DOCUMENT`: RESULTS is a folder with one file for each kernel
that was looked at, DOCUMENT is made of all of them. Without a DOCUMENT, as in a virtual machine,
only this kernel's file is written, of what depends on the kernel: without other sandboxes and the
guard. With `--document` before them only the document is.
"""

from __future__ import annotations

import json
import os
import platform
import sys
from pathlib import Path
from typing import Any

_HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(_HERE.parent), str(_HERE.parent.parent)]

from escapes.egress_suite import egress_rows  # noqa: E402 - found by the line above
from escapes.guard_suite import guard_rows  # noqa: E402
from escapes.kernel_suite import kernel_rows, operation_rows  # noqa: E402
from escapes.peers import PEERS  # noqa: E402
from escapes.rendering import document  # noqa: E402
from escapes.side_by_side import Unusable, verdicts  # noqa: E402
from host_features import landlock_abi  # noqa: E402


def _say(words: str) -> None:
    sys.stderr.write(f"→ {words}\n")


def _peers() -> tuple[dict[str, dict[str, str]], dict[str, str]]:
    """Return the verdicts of each peer that runs here, and what each is or why it does not run."""
    tried, about = {}, {}
    for peer in PEERS:
        _say(f"the kernel's techniques in {peer.name}")
        about[peer.name] = peer.version()
        try:
            tried[peer.name] = verdicts(peer)
        except Unusable as reason:
            about[peer.name] = f"not compared: {reason}"
    return tried, about


def look(*, fully: bool) -> dict[str, Any]:
    """Try everything, or what depends on the kernel; return what was seen as plain values."""
    peers, about = _peers() if fully else ({}, {})
    _say("the kernel's techniques, layer by layer")
    rows = [*kernel_rows(peers, guarded=fully), *operation_rows()]
    if fully:
        _say("the guard's corpus, layer by layer")
        rows += guard_rows()
    _say("egress, layer by layer")
    rows += egress_rows()
    host = {
        "kernel": platform.release(),
        "landlock": landlock_abi(),
        "python": platform.python_version(),
        "peers": about,
    }
    return {"host": host, "rows": [row.document() for row in rows]}


def main(results: Path, written: Path | None) -> None:
    """Look, keep, and write."""
    if os.geteuid() != 0:
        sys.exit("the report needs root: half of the techniques are root's")
    seen = look(fully=written is not None)
    results.mkdir(parents=True, exist_ok=True)
    name = "-".join(("linux", *platform.release().split(".")[:2]))
    kept = results / f"{name}.json"
    kept.write_text(json.dumps(seen, indent=1) + "\n", encoding="utf-8")
    if written is not None:
        write(results, written)


def write(results: Path, written: Path) -> None:
    """Make the document of what was seen, here and elsewhere."""
    written.write_text(document(read_all(results)), encoding="utf-8")
    _say(f"wrote {written}")


def read_all(results: Path) -> list[dict[str, Any]]:
    """Return what was seen on each kernel, the newest first."""
    seen = [json.loads(path.read_text(encoding="utf-8")) for path in results.glob("*.json")]
    return sorted(seen, key=lambda one: _version(one["host"]["kernel"]), reverse=True)


def _version(kernel: str) -> list[int]:
    return [int(part) for part in kernel.partition("-")[0].split(".") if part.isdigit()]


if __name__ == "__main__":
    places = [Path(word) for word in sys.argv[1:] if word != "--document"]
    if "--document" in sys.argv:
        write(*places)
    else:
        main(places[0], places[1] if places[1:] else None)
