"""The application's own folders, which manifests name as `{data_dir}` and the like.

An operator moves one with `DEMOCRAI_<NAME>_DIR`; otherwise the XDG defaults hold. Nothing here
creates a folder.
"""

from __future__ import annotations

import os

_APPLICATION = "democrai"
_XDG = {
    "data": ("XDG_DATA_HOME", ".local/share"),
    "cache": ("XDG_CACHE_HOME", ".cache"),
    "state": ("XDG_STATE_HOME", ".local/state"),
}


def data_dir() -> str:
    """Return the folder of the application's lasting data."""
    return _own_or_xdg("data")


def cache_dir() -> str:
    """Return the folder of what can be made again."""
    return _own_or_xdg("cache")


def state_dir() -> str:
    """Return the folder of the store, its key, the audit log and the sockets."""
    return _own_or_xdg("state")


def temp_dir() -> str:
    """Return the folder of what need not outlive a run."""
    return os.environ.get("DEMOCRAI_TEMP_DIR") or os.environ.get("TMPDIR") or "/tmp"  # noqa: S108 - POSIX's own default


# Only the store, its key, the audit log and the sockets, which lie in the state folder.
OWN_NAMES = ("approvals", "audit", "keys", "helper", "launch")
_HELPER = "/run/democrai-osguard"


def own_places() -> tuple[str, ...]:
    """Return prefixes of what belongs to the guard itself: no rule opens it, nobody is asked."""
    folder = os.path.realpath(state_dir())
    return (_HELPER, *(os.path.join(folder, name) for name in OWN_NAMES))


# What a manifest may write at the start of a file system target.
TOKENS = {"{data_dir}": data_dir, "{cache_dir}": cache_dir, "{temp_dir}": temp_dir}


def _own_or_xdg(name: str) -> str:
    variable, below_home = _XDG[name]
    own = os.environ.get(f"DEMOCRAI_{name.upper()}_DIR")
    if own:
        return own
    root = os.environ.get(variable) or os.path.join(os.path.expanduser("~"), below_home)
    return os.path.join(root, _APPLICATION)
