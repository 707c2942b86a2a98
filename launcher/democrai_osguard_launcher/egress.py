"""Asks the helper to hold the command's egress by address. Imported only with network rules.

The helper moves its peer, and nobody else, into a cgroup of its own. So this process asks for
itself, before it opens any other socket, and what it becomes stays there.
"""

from __future__ import annotations

import json
import os

from .endpoints import LOCALHOST, is_address
from .errors import NotEnforced

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from collections.abc import Mapping, Sequence

    Place = tuple[str, int | None]
else:
    import _socket as socket

SOCKET_VARIABLE = "DEMOCRAI_OS_HELPER_SOCKET"
_DEFAULT_SOCKET = "/run/democrai-osguard/helper.sock"
_LOOPBACK = ("127.0.0.0/8", "::1")
_HEADER = 4
_MAX_REPLY = 2 * 1024 * 1024
_PATIENCE = 20.0  # seconds: the helper may have to look names up


def is_reachable() -> bool:
    """Tell whether somebody listens at the helper's socket."""
    try:
        _connected().close()
    except OSError:
        return False
    return True


def confine(places: Sequence[Place], environment: Mapping[str, str]) -> str:
    """Move this process into a sandbox with these places, and return the sandbox's name.

    Raise NotEnforced when that fails.
    """
    request = json.dumps(message(places, environment)).encode()
    try:
        connection = _connected()
        connection.sendall(len(request).to_bytes(_HEADER, "big") + request)
        reply = json.loads(_exactly(connection, _length(connection)))
        connection.close()
    except (OSError, ValueError) as error:
        raise NotEnforced(f"the helper did not hold the network rules: {error}") from error
    if not isinstance(reply, dict) or reply.get("call") != "applied" or not reply.get("layers"):
        words = reply.get("text") if isinstance(reply, dict) else None
        raise NotEnforced(f"the helper did not hold the network rules: {words}")
    return str(reply.get("sandbox"))


def message(places: Sequence[Place], environment: Mapping[str, str]) -> dict[str, object]:
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
        "names": [
            {"name": host, "port": port, "protocol": None, "within": []}
            for host, port in places
            if not _networks(host)
        ],
        # One layer that was tried and holds is enough; a second one makes it robust.
        "require": "partial",
    }


def _networks(host: str) -> tuple[str, ...]:
    if host == LOCALHOST:
        return _LOOPBACK
    return (host,) if is_address(host) else ()


def _connected() -> socket.socket:
    path = os.environ.get(SOCKET_VARIABLE) or _DEFAULT_SOCKET
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0)
    connection.settimeout(_PATIENCE)
    try:
        connection.connect(path)
    except OSError:
        connection.close()
        raise
    return connection


def _length(connection: socket.socket) -> int:
    length = int.from_bytes(_exactly(connection, _HEADER), "big")
    if not 0 < length <= _MAX_REPLY:
        raise ValueError(f"an answer of {length} bytes")
    return length


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = connection.recv(size - len(data))
        if not piece:
            raise ValueError("it hung up")
        data += piece
    return data
