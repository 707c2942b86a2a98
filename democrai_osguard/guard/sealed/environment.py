"""The process's environment: `DEMOCRAI_*` belongs to the runtime, everything else is free."""

from __future__ import annotations

from typing import Any

from democrai_osguard.guard.sealed.answers import refusal
from democrai_osguard.guard.sealed.core import State, current, text_of

OWNED = "DEMOCRAI_"
# Libraries of this process read these at any time, and load native code, or ask for another name.
LOADERS = frozenset(
    {
        "GCONV_PATH",
        "HOSTALIASES",
        "LOCPATH",
        "OPENSSL_CONF",
        "OPENSSL_ENGINES",
        "OPENSSL_MODULES",
    }
)
# These say where the application's own folders are, which every guard opens.
FOLDERS = frozenset({"HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"})
LIVE: list[dict[bytes, bytes]] = [{}]  # the dict inside os.environ, from installation on


def about_variable(state: State, name: object) -> Warning | None:
    """Return the refusal of a change to a variable of the runtime, or of native libraries."""
    text = text_of(name)
    if text is None or text.startswith(OWNED) or text in LOADERS or text in FOLDERS:
        return refusal(state, "sandbox_env_denied", None, text or "an odd name")
    return None


def act(verb: str, key: Any, value: Any = None) -> Any:
    """Do to the inner mapping what its outside is asked for."""
    data = LIVE[0]
    if verb == "list":
        return list(data)
    key, value = _exact(key), _exact(value)
    if verb == "get":
        return None if key is None else data.get(key)
    if key is None:
        raise TypeError("a variable has a name of bytes")
    state = current()
    answer = None if state is None else about_variable(state, key)
    if answer is not None:
        return answer
    if verb == "set":
        data[key] = value
    else:
        data.pop(key, None)
    return None


def _exact(value: Any) -> bytes | None:
    """Return bytes without methods of their own: a name must equal itself, and nothing else."""
    return b"".join((value,)) if isinstance(value, bytes) else None
