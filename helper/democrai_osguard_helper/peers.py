"""Who is at the other end of a connection: known from the socket, never from a message.

The peer is who opened the connection, and its user is whose call it is. Who sends may be another:
a child that inherited the descriptor. The kernel says so with each part that arrives: a sender
inside a sandbox is refused like an opener, and nobody else has the opener moved.
"""

from __future__ import annotations

import contextlib
import functools
import os
import select
import socket
import struct
from dataclasses import dataclass, replace
from typing import Final

from .cgroups import inside_sandbox, place
from .crowd import ROOT

SO_PASSPIDFD: Final = 76  # since Linux 6.5, as the next two
SO_PEERPIDFD: Final = 77
SCM_PIDFD: Final = 4
_CREDENTIALS: Final = struct.Struct("=iII")
_DESCRIPTOR: Final = struct.Struct("=i")


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
    gid: int
    pidfd: int

    def check(self) -> None:
        """Raise PeerRefused unless the process lives, outside every sandbox."""
        if inside_sandbox(self._read("cgroup")):
            raise PeerRefused("inside_sandbox", "a process inside a sandbox may not ask")

    def check_rights(self, *, for_good: bool = False) -> None:
        """Raise PeerRefused unless it is still of the user and the group that it connected as.

        A set-user-id program in its place is another's: no user decides what that may reach. With
        `for_good` it must not be able to become one either.
        """
        rows = dict(line.partition(":")[::2] for line in self._read("status").splitlines())
        users, groups = set(rows["Uid"].split()), set(rows["Gid"].split())
        if (users, groups) != ({str(self.uid)}, {str(self.gid)}):
            text = "the process that opened this connection has another's rights by now"
            raise PeerRefused("rights_changed", text)
        if for_good and self.uid != ROOT and rows["NoNewPrivs"].strip() != "1":
            text = "a process that could start set-user-id programs is not confined on this host"
            raise PeerRefused("may_gain_rights", f"{text}: set no_new_privs first")

    def cgroup(self) -> str:
        """Return where in the tree of cgroups it is."""
        return place(self._read("cgroup"))

    def _read(self, name: str) -> str:
        text = _read(f"/proc/{self.pid}/{name}")
        # After reading: a number that was given away meanwhile would have told of another process.
        if self.has_ended():
            raise PeerRefused("peer_gone", "the process that opened this connection has ended")
        return text

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
    pid, uid, gid = _CREDENTIALS.unpack(raw)
    try:
        pidfd = _pidfd(connection, pid)
    except (OSError, ValueError) as error:
        raise PeerRefused("peer_gone", f"the peer is not there any more: {error}") from error
    known = _pid_of(pidfd)
    if known != pid:
        os.close(pidfd)
        raise PeerRefused("peer_gone", "the peer has ended or is not visible from here")
    return Peer(pid, uid, gid, pidfd)


def name_senders(stream: socket.socket) -> None:
    """Let the kernel say with everything that arrives who sent it."""
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
    with contextlib.suppress(OSError):  # before Linux 6.5 the number has to do
        stream.setsockopt(socket.SOL_SOCKET, SO_PASSPIDFD, 1)


def receive(stream: socket.socket, size: int, peer: Peer) -> tuple[bytes, bool]:
    """Read from one sender, and tell whether it is the peer.

    Raise PeerRefused unless it is, or lives outside as well. The peer itself is looked at before
    each call. Descriptors are not taken, and end it.
    """
    room = socket.CMSG_SPACE(_CREDENTIALS.size) + 2 * socket.CMSG_SPACE(_DESCRIPTOR.size)
    data, said, flags, _ = stream.recvmsg(size, room, socket.MSG_CMSG_CLOEXEC)
    sender, strange = _read_ancillary(said)
    try:
        if strange or flags & socket.MSG_CTRUNC:
            raise PeerRefused("protocol_violation", "a message brings no descriptors")
        # A number is one process's for as long as that one lives.
        is_peer = sender is not None and sender.pid == peer.pid and not peer.has_ended()
        if data and not is_peer:
            _check_sender(sender)
    finally:
        if sender is not None and sender.pidfd >= 0:
            sender.close()
    return data, is_peer


def _read_ancillary(said: list[tuple[int, int, bytes]]) -> tuple[Peer | None, bool]:
    pid, uid, gid, pidfd, strange = 0, 0, 0, -1, False
    for level, kind, content in said:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS):
            pid, uid, gid = _CREDENTIALS.unpack(content)
        elif (level, kind) == (socket.SOL_SOCKET, SCM_PIDFD):
            (pidfd,) = _DESCRIPTOR.unpack(content)
        elif (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            strange = True
            for (given,) in _DESCRIPTOR.iter_unpack(content):
                os.close(given)
    return (Peer(pid, uid, gid, pidfd) if pid > 0 else None), strange


def _check_sender(sender: Peer | None) -> None:
    if sender is None:
        raise PeerRefused("peer_gone", "the process that sent this is not visible from here")
    if sender.pidfd >= 0:
        if _pid_of(sender.pidfd) != sender.pid:
            raise PeerRefused("peer_gone", "the process that sent this has ended")
        sender.check()
        return
    if identity_method() == "pidfd":
        raise PeerRefused("peer_gone", "the process that sent this has ended")
    try:
        found = replace(sender, pidfd=os.pidfd_open(sender.pid))
    except OSError as error:
        raise PeerRefused("peer_gone", "the process that sent this has ended") from error
    try:
        found.check()
    finally:
        found.close()


@functools.cache
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
