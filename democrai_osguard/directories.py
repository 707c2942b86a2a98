"""The application's own folders, which manifests name as `{data_dir}` and the like.

An operator moves one with `DEMOCRAI_<NAME>_DIR`; otherwise the XDG defaults hold. Nothing here
creates a folder.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_APPLICATION = "democrai"
_XDG = {
    "data": ("XDG_DATA_HOME", ".local/share"),
    "cache": ("XDG_CACHE_HOME", ".cache"),
    "state": ("XDG_STATE_HOME", ".local/state"),
}


SHARED = ("/tmp", "/var/tmp", "/usr/tmp")  # noqa: S108 - everybody's folders, for nobody's guard
# Who changes one of these chooses where the folders are.
VARIABLES = (
    *(f"DEMOCRAI_{name.upper()}_DIR" for name in ("cache", "data", "log", "state", "temp")),
    *(variable for variable, _ in _XDG.values()),
    "HOME",
)


def data_dir() -> str:
    """Return the folder of the application's lasting data."""
    return _own_or_xdg("data", os.environ)


def cache_dir() -> str:
    """Return the folder of what can be made again."""
    return _own_or_xdg("cache", os.environ)


def state_dir() -> str:
    """Return the folder of the store, its key, the audit log and the sockets."""
    return _own_or_xdg("state", os.environ)


def temp_dir() -> str:
    """Return the folder of what need not outlive a run."""
    return _temp_dir(os.environ)


def own_folders(variables: Mapping[str, str]) -> tuple[str, ...]:
    """Return the folders of data, cache, state, logs and temporary files, by these variables."""
    # Nothing is called here that others could replace: a guard asks.
    data, cache, state = (_own_or_xdg(name, variables) for name in _XDG)
    log = variables.get("DEMOCRAI_LOG_DIR") or f"{state}/log"
    return data, cache, state, log, _temp_dir(variables)


# Only the store, its key, the audit log and the sockets, which lie in the state folder.
OWN_NAMES = ("approvals", "audit", "keys", "helper", "launch")
_HELPER = "/run/democrai-osguard"


def own_places() -> tuple[str, ...]:
    """Return prefixes of what belongs to the guard itself: no rule opens it, nobody is asked."""
    folder = os.path.realpath(state_dir())
    return (_HELPER, *(os.path.join(folder, name) for name in OWN_NAMES))


# What a manifest may write at the start of a file system target.
TOKENS = {"{data_dir}": data_dir, "{cache_dir}": cache_dir, "{temp_dir}": temp_dir}


def _own_or_xdg(name: str, variables: Mapping[str, str]) -> str:
    variable, below_home = _XDG[name]
    own = variables.get(f"DEMOCRAI_{name.upper()}_DIR")
    if own:
        return own
    home = variables.get("HOME") or os.path.expanduser("~")
    return f"{variables.get(variable) or f'{home}/{below_home}'}/{_APPLICATION}"


def _temp_dir(variables: Mapping[str, str]) -> str:
    # One of the application's own: what others share, as /tmp, is not for guarded code to look at.
    return variables.get("DEMOCRAI_TEMP_DIR") or f"{_own_or_xdg('cache', variables)}/temp"
