"""Tries one technique inside a sandbox, and says on its output what came of it.

Called as `python3 attempt.py NAME WORLD`, WORLD as JSON; without a NAME it tries what was granted.
It needs the standard library and a copy of `techniques` beside it, so any sandbox can run it.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import techniques  # type: ignore[import-not-found]

NAMESPACES = ("ipc", "mnt", "net", "pid", "user", "uts")


def _granted(world: Any) -> None:  # noqa: ANN401 - the copied module has no types
    """Do what every sandbox was told to allow."""
    (world.inside.parent / "readable/file").read_bytes()
    (world.inside / "made").write_text("new")
    (world.inside / "made").write_text("changed")
    (world.inside / "made").unlink()


def _world(text: str) -> Any:  # noqa: ANN401 - likewise
    fields = json.loads(text)
    # The address of the secret in the neighbour's memory: nothing here reads it by itself.
    techniques.reading.MEMORY = (ctypes.c_char * 64).from_address(fields.pop("memory"))
    folders = {name: Path(fields.pop(name)) for name in ("inside", "outside")}
    return techniques.World(**folders, **fields)


def main(name: str, world: str) -> None:
    """Try it; print where we are first, since a technique may end this process."""
    places = {kind: os.readlink(f"/proc/self/ns/{kind}") for kind in NAMESPACES}
    sys.stdout.write(json.dumps(places) + "\n")
    sys.stdout.flush()
    act = techniques.TECHNIQUES[name][0] if name else _granted
    verdict = "allowed"
    try:
        act(_world(world))
    except OSError as error:
        import errno  # noqa: PLC0415 - as little as possible before the attempt

        verdict = errno.errorcode.get(error.errno or 0, type(error).__name__)
    except Exception as error:  # noqa: BLE001 - whatever stopped it is the finding
        verdict = type(error).__name__
    os.write(1, f"{verdict}\n".encode())


if __name__ == "__main__":
    main(*sys.argv[1:])
