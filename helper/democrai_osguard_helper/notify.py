"""What the service manager hands over and wants to hear: sockets, readiness, the watchdog."""

from __future__ import annotations

import errno
import os
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

FIRST_DESCRIPTOR: Final = 3


@dataclass(frozen=True, slots=True)
class Manager:
    """The service manager, as the environment describes it."""

    address: str | None = None
    watchdog_seconds: float | None = None
    sockets: int = 0

    def tell(self, state: str) -> None:
        """Send one line of state; without a manager nobody is told."""
        if self.address is None:
            return
        address = "\0" + self.address[1:] if self.address.startswith("@") else self.address
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
            channel.sendto(state.encode(), address)

    def listener(self) -> socket.socket | None:
        """Return the socket that the manager opened for us; raise OSError for another kind."""
        if not self.sockets:
            return None
        found = socket.socket(fileno=FIRST_DESCRIPTOR)
        kind = found.family, found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
        if kind != (socket.AF_UNIX, 1):  # of nobody else the kernel says who it is
            found.close()
            raise OSError(errno.EINVAL, "the manager's socket is no listening unix socket")
        return found


def from_environment(environment: Mapping[str, str]) -> Manager:
    """Read what the manager says; its sockets only if they are meant for this process."""
    ours = environment.get("LISTEN_PID") == str(os.getpid())
    microseconds = environment.get("WATCHDOG_USEC", "")
    return Manager(
        environment.get("NOTIFY_SOCKET"),
        int(microseconds) / 1_000_000 if microseconds.isdigit() else None,
        int(given) if ours and (given := environment.get("LISTEN_FDS", "")).isdigit() else 0,
    )
