"""Hears when somebody changes the rules of this network namespace, so that nobody has to wait.

Only the nf_tables backend tells; with the legacy one the regular look has to do. What was changed
is not read: whoever is told looks for itself.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Final

from .loop import READ

if TYPE_CHECKING:
    from collections.abc import Callable

    from .loop import Loop

_NETLINK_NETFILTER: Final = 12
_NFTABLES_GROUP: Final = 7  # NFNLGRP_NFTABLES
_CHUNK: Final = 64 * 1024
SETTLE: Final = 0.005  # seconds: one change is many messages


class RulesetNews:
    """A subscription; `changed` is called once for each burst of messages."""

    def __init__(self, loop: Loop, changed: Callable[[], None]) -> None:
        self._loop = loop
        self._changed = changed
        self._waiting = False
        self._line = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_NETFILTER)
        self._line.settimeout(0)
        self._line.bind((0, 1 << (_NFTABLES_GROUP - 1)))
        loop.watch(self._line.fileno(), READ, lambda _events: self._heard())

    def close(self) -> None:
        """End the subscription."""
        self._loop.forget(self._line.fileno())
        self._line.close()

    def _heard(self) -> None:
        try:
            while self._line.recv(_CHUNK):
                continue
        except OSError:  # read empty; or ENOBUFS: messages were lost, which is news too
            pass
        if not self._waiting:
            self._waiting = True
            self._loop.later(SETTLE, self._tell)

    def _tell(self) -> None:
        self._waiting = False
        self._changed()
