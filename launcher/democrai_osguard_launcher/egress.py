"""Asks the helper to hold the command's egress by address. Imported only with network rules.

The helper moves its peer, and nobody else, into a cgroup of its own. So this process asks for
itself, before it opens any other socket, and what it becomes stays there.
"""

from __future__ import annotations

import os

from .endpoints import LOCALHOST, is_address
from .errors import NotEnforced
from .helper_socket import ask, connected

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Place = tuple[str, int | None]

_LOOPBACK = ("127.0.0.0/8", "::1")
_REFRESH_VARIABLE = "DEMOCRAI_SANDBOX_OS_REFRESH_SECONDS"
_MIN_REFRESH, _MAX_REFRESH = 5, 3600  # seconds, as the helper takes them


def confine(places: Sequence[Place], environment: Mapping[str, str], required: str) -> str:
    """Move this process into a sandbox with these places, and return the sandbox's name.

    Raise NotEnforced when that fails, or when less holds it than is required.
    """
    request = message(places, environment, required)
    try:
        connection = connected()
        reply = ask(connection, request)
        connection.close()
    except (OSError, ValueError) as error:
        raise NotEnforced(f"the helper did not hold the network rules: {error}") from error
    if reply.get("call") != "applied" or not reply.get("layers"):
        words = reply.get("text")
        raise NotEnforced(f"the helper did not hold the network rules: {words}")
    _say_what_stays_closed(reply.get("failed_names"))
    return str(reply.get("sandbox"))


def _say_what_stays_closed(names: object) -> None:
    """Tell the person which names open less than they say; of those below a star the plan does."""
    for line in names if isinstance(names, list) else ():
        if not str(line).startswith("*."):
            shown = "".join(filter(str.isprintable, str(line)))
            os.write(2, f"democrai-launch: stays closed: {shown}\n".encode())


def message(
    places: Sequence[Place], environment: Mapping[str, str], required: str
) -> dict[str, object]:
    """Return what the helper is told. Pure."""
    return {
        "call": "confine",
        "subject": {
            "type": environment.get("DEMOCRAI_NETWORK_SUBJECT_KIND", "core"),
            "name": environment.get("DEMOCRAI_NETWORK_SUBJECT", "unknown"),
        },
        "session": environment.get("DEMOCRAI_SESSION_KEY"),
        "endpoints": [
            {"network": network, "port": port, "protocol": None}
            for host, port in places
            for network in _networks(host)
        ],
        "names": [  # to inner addresses a name leads where other rules open them
            {"name": host, "port": port, "protocol": None, "within": []}
            for host, port in places
            if not _networks(host)
        ],
        # Being held by nothing at all is not being held: one layer is the least to ask for.
        "require": required if required == "full" else "partial",
        "refresh": refresh_seconds(os.environ.get(_REFRESH_VARIABLE)),
    }


def refresh_seconds(text: str | None) -> int | None:
    """Return how old an address of a name may get, within the helper's bounds; None for its own.

    Raise NotEnforced where the operator's word is not a number of seconds. Pure.
    """
    if not text:
        return None
    try:
        return int(min(max(float(text), _MIN_REFRESH), _MAX_REFRESH))
    except ValueError as error:
        raise NotEnforced(f"{_REFRESH_VARIABLE}: expected a number of seconds") from error


def _networks(host: str) -> tuple[str, ...]:
    if host == LOCALHOST:
        return _LOOPBACK
    return (host,) if is_address(host) else ()
