"""What the outermost guard may touch undeclared: the system's files and the application's folders.

The folders are where the process's real variables say, and none of these is guarded code's to set.
"""

from __future__ import annotations

from posix import mkdir

from democrai_osguard.directories import OWN_NAMES, VARIABLES, own_folders
from democrai_osguard.guard.sealed.answers import PROTECTED
from democrai_osguard.guard.sealed.environment import LIVE
from democrai_osguard.guard.sealed.paths import absolute, resolve

SYSTEM: dict[str, frozenset[str]] = {}  # what is the same everywhere, from installation on
HOME: list[str] = []  # where that is if no variable says so, likewise
_OPERATIONS = ("read", "create", "modify", "delete")
_ROOM = 16
_states: set[str] = set()  # folders whose own files are closed already
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


def protect_own() -> None:
    """Close the store, its key and the log wherever the state folder is by now."""
    _, _, state, _, _ = _folders()
    if state in _states:
        return
    _states.add(state)
    place = _place(state)
    if place is not None:
        PROTECTED[0] = (*PROTECTED[0], *(f"{place}/{name}" for name in OWN_NAMES))


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
