"""What the outermost guard may touch undeclared: the system's files and the application's folders.

The folders are where the process's real variables say, and none of these is guarded code's to set.
"""

from __future__ import annotations

from posix import mkdir

from democrai_osguard.directories import VARIABLES, own_folders
from democrai_osguard.guard.sealed.environment import LIVE
from democrai_osguard.guard.sealed.paths import absolute, resolve

SYSTEM: dict[str, frozenset[str]] = {}  # what is the same everywhere, from installation on
HOME: list[str] = []  # where that is if no variable says so, likewise
_OPERATIONS = ("read", "create", "modify", "delete")
_ROOM = 16
_tables: dict[tuple[str, ...], dict[str, frozenset[str]]] = {}


def runtime_table() -> dict[str, frozenset[str]]:
    """Return normal paths by operation."""
    folders = _folders()
    table = _tables.get(folders)
    if table is None:
        _make(folders[-1])
        if len(_tables) > _ROOM:
            _tables.clear()
        own = frozenset(filter(None, map(_place, folders)))
        table = {verb: own | SYSTEM.get(verb, frozenset()) for verb in _OPERATIONS}
        _tables[folders] = table
    return table


def temp_folder() -> str | None:
    """Return where temporary files are, None where that leads nowhere."""
    return _place(_folders()[-1])


def _folders() -> tuple[str, ...]:
    found = ((name, LIVE[0].get(name.encode())) for name in VARIABLES)
    variables = {name: _text(value) for name, value in found if value}
    return own_folders({"HOME": HOME[0], **variables})


def _make(folder: str) -> None:
    """Make a folder with those above it, its owner's alone; where it fails, `tempfile` says so."""
    place = ""
    for name in absolute(folder).split("/")[1:]:
        place = f"{place}/{name}"
        try:
            mkdir(place, 0o700)
        except FileExistsError:
            continue
        except OSError:
            return


def _text(value: bytes) -> str:
    return value.decode("utf-8", "surrogateescape")


def _place(folder: str) -> str | None:
    """Return where a folder is, None for the root and for what leads nowhere."""
    try:
        place = resolve(absolute(folder))
    except Warning:
        return None
    return None if place == "/" else place
