"""Where the helper listens. Imports next to nothing: it is asked for before anything else is done.

The helper begins what is slow for it with the first connection, so the earlier that comes the
less the command waits.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator
else:
    import _socket as socket

SOCKET_VARIABLE = "DEMOCRAI_OS_HELPER_SOCKET"
_DEFAULT_SOCKET = "/run/democrai-osguard/helper.sock"
_HEADER = 4
_MAX_REPLY = 2 * 1024 * 1024
_PATIENCE = 20.0  # seconds: the helper may have to look names up


def missing_layers() -> tuple[str, ...] | None:
    """Return what the helper has not to hold addresses with; None where nobody listens.

    A helper that does not say is asked again by whoever needs it, and may refuse then.
    """
    try:
        connection = connected()
    except OSError:
        return None
    try:
        reply = ask(connection, {"call": "status"})
        return tuple(_missing_layers(reply.get("layers")))
    except (OSError, ValueError):
        return ()
    finally:
        connection.close()


def ask(connection: socket.socket, request: dict[str, object]) -> dict[str, object]:
    """Return the helper's answer; raise OSError or ValueError where there is none."""
    import json  # noqa: PLC0415 - where nobody listens it is not needed

    text = json.dumps(request).encode()
    connection.sendall(len(text).to_bytes(_HEADER, "big") + text)
    reply = json.loads(_exactly(connection, _length(connection)))
    if not isinstance(reply, dict):
        raise ValueError("an answer that is no object")  # noqa: TRY004 - as for other bad answers
    return reply


def places() -> tuple[str, ...]:
    """Return where a helper may listen."""
    return tuple({os.environ.get(SOCKET_VARIABLE) or _DEFAULT_SOCKET, _DEFAULT_SOCKET})


def connected() -> socket.socket:
    """Return a connection to the helper; raise OSError where nobody listens."""
    path = os.environ.get(SOCKET_VARIABLE) or _DEFAULT_SOCKET
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0)
    connection.settimeout(_PATIENCE)
    try:
        connection.connect(path)
    except OSError:
        connection.close()
        raise
    return connection


def _missing_layers(layers: object) -> Iterator[str]:
    for each in layers if isinstance(layers, list) else ():
        if each.get("reason"):
            yield f"the helper has no {each.get('layer')} layer: {each['reason']}"


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
