"""Listeners that tests of connections share."""

from __future__ import annotations

import contextlib
import select
import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def full_listener() -> Iterator[int]:
    """Yield the port of a listener that answers nobody any more: its queue is full."""
    with contextlib.ExitStack() as kept:
        listener = kept.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        answered = True
        while answered:
            client = kept.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex(listener.getsockname())
            answered = bool(select.select([], [client], [], 0.5)[1])
        yield listener.getsockname()[1]
