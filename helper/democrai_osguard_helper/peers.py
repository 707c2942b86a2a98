"""Who is at the other end of a connection: known from the socket, never from a message."""

from __future__ import annotations

import os
import select
import socket
import struct
from dataclasses import dataclass
from typing import Final

from .cgroups import inside_sandbox

SO_PEERPIDFD: Final = 77  # since Linux 6.5
_CREDENTIALS: Final = struct.Struct("=iII")


class PeerRefused(Exception):
    """The peer cannot be known, has ended, or sits in a sandbox; `code` says which."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


@dataclass(frozen=True, slots=True)
class Peer:
    """A process: its number is good as long as its descriptor does not say that it ended."""

    pid: int
    uid: int
    pidfd: int

    def check(self) -> None:
        """Raise PeerRefused unless the process lives, outside every sandbox."""
        membership = _read(f"/proc/{self.pid}/cgroup")
        # After reading: a number that was given away meanwhile would have told of another process.
        if self.has_ended():
            raise PeerRefused("peer_gone", "the process that opened this connection has ended")
        if inside_sandbox(membership):
            raise PeerRefused("inside_sandbox", "a process inside a sandbox may not ask")

    def has_ended(self) -> bool:
        """Tell whether the process has ended."""
        poll = select.poll()
        poll.register(self.pidfd, select.POLLIN)
        return bool(poll.poll(0))

    def close(self) -> None:
        """Give the descriptor back."""
        os.close(self.pidfd)


def identify(connection: socket.socket) -> Peer:
    """Return the peer of a connection; raise PeerRefused where it is gone already."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(raw)
    try:
        pidfd = _pidfd(connection, pid)
    except (OSError, ValueError) as error:
        raise PeerRefused("peer_gone", f"the peer is not there any more: {error}") from error
    known = _pid_of(pidfd)
    if known != pid:
        os.close(pidfd)
        raise PeerRefused("peer_gone", "the peer has ended or is not visible from here")
    return Peer(pid, uid, pidfd)


def identity_method() -> str:
    """Say how peers are known on this kernel: `pidfd`, or `pid` where it is older than 6.5."""
    one, other = socket.socketpair()
    with one, other:
        try:
            os.close(one.getsockopt(socket.SOL_SOCKET, SO_PEERPIDFD))
        except OSError:
            return "pid"
    return "pidfd"


def _pidfd(connection: socket.socket, pid: int) -> int:
    try:
        return connection.getsockopt(socket.SOL_SOCKET, SO_PEERPIDFD)
    except OSError as error:
        if pid <= 0 or identity_method() == "pidfd":
            raise
        found = os.pidfd_open(pid)
        # Older kernels: a peer that ended has hung up, unless a child of its own holds the socket.
        if _hung_up(connection):
            os.close(found)
            raise OSError(error.errno, "the peer hung up") from error
        return found


def _hung_up(connection: socket.socket) -> bool:
    poll = select.poll()
    poll.register(connection, select.POLLHUP | select.POLLRDHUP)
    return bool(poll.poll(0))


def _pid_of(pidfd: int) -> int:
    for line in _read(f"/proc/self/fdinfo/{pidfd}").splitlines():
        if line.startswith("Pid:"):
            return int(line.split()[1])
    return -1


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return file.read()
    except (FileNotFoundError, ProcessLookupError) as error:
        raise PeerRefused("peer_gone", "the process has ended") from error
