"""What is tried of unix sockets with a path. Nobody who listens notices.

A socket for packets in order finds no peer that is for a stream or for datagrams; the kernel finds
that out only where it was let look. Imported only where the broker judges paths.
"""

from __future__ import annotations

from .plan import BY_PATH
from .trial import ALLOWED, REFUSED, Futile

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator

    from .plan import Plan
    from .trial import Trial
else:
    import _socket as socket

_NO_PEER = ("EPROTOTYPE", "ECONNREFUSED")


def socket_trials(plan: Plan) -> Iterator[Trial]:
    """Yield a place that no rule opens, and the first socket that one does."""
    modified = [each.rule.target for each in plan.rules if each.rule.operation == "modify"]
    if "/" not in modified:
        yield from _connection("/").tried(REFUSED)
    opened = (each.rule.target for each in plan.rules if each.held_by == BY_PATH)
    for path in tuple(opened)[:1]:
        yield from _connection(path).tried(ALLOWED)


def _connection(path: str) -> Futile:
    def do() -> None:
        client = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, 0)
        try:
            client.connect(path)
        finally:
            client.close()

    return Futile("unix sockets", f"connecting to {path}", do, _NO_PEER)
