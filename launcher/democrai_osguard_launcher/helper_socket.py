"""Where the helper listens. Imports next to nothing: it is asked for before anything else is done.

The helper begins what is slow for it with the first connection, so the earlier that comes the
less the command waits.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
else:
    import _socket as socket

SOCKET_VARIABLE = "DEMOCRAI_OS_HELPER_SOCKET"
_DEFAULT_SOCKET = "/run/democrai-osguard/helper.sock"
_PATIENCE = 20.0  # seconds: the helper may have to look names up


def is_reachable() -> bool:
    """Tell whether somebody listens at the helper's socket."""
    try:
        connected().close()
    except OSError:
        return False
    return True


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
