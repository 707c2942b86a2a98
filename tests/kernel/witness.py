"""A command that says what it finds itself confined to, and what comes of whatever it tries.

Its one argument is JSON: the folders of the acts, and a world where the ways out are tried too.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from kernel.conftest import in_a_fork
from kernel.folder_acts import ACTS, METADATA
from kernel.techniques import TECHNIQUES, World

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")
_OWN = (
    "NoNewPrivs",
    "Seccomp",
    "Umask",
    "Cap",
    "SigPnd",
    "SigBlk",
    "SigIgn",
    "SigCgt",
    "Uid",
    "Gid",
    "Groups",
    "TracerPid",
)
_PATIENCE = 30


def found() -> dict[str, object]:
    """Return what a process is given by whoever started it."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return {
        "status": [line for line in lines if line.startswith(_OWN)],
        "limits": Path("/proc/self/limits").read_text(),
        "descriptors": [
            [number, os.get_inheritable(number)] for number in range(3, 1024) if _is_open(number)
        ],
        "folder": os.getcwd(),
        "environment": dict(os.environ),
        "parent": os.getppid(),
        "group": os.getpgid(0) == os.getpid(),
        "session": os.getsid(0),
    }


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def tried(folders: str, places: list[str | int]) -> dict[str, str]:
    """Return what comes of each act in a folder of its own, and of each way out."""
    acts = {**{name: act for name, (act, _) in ACTS.items()}, **METADATA}
    verdicts = {
        name: in_a_fork(_limited(act, Path(folders) / str(number)), None)
        for number, (name, act) in enumerate(acts.items())
    }
    if places:
        world = World(Path(str(places[0])), Path(str(places[1])), *map(int, places[2:]))
        for name, (attempt, _) in TECHNIQUES.items():
            verdicts[f"way out: {name}"] = in_a_fork(_limited(attempt, world), None)
    return verdicts


def _limited(act: Callable[[T], object], on: T) -> Callable[[], object]:
    def do() -> None:
        signal.alarm(_PATIENCE)
        act(on)

    return do


if __name__ == "__main__":
    asked = json.loads(sys.argv[1])
    # First, so that nothing that is tried shows in it.
    given = found()
    verdicts = tried(*asked) if asked else {}
    sys.stdout.write(json.dumps({"found": given, "tried": verdicts}))
