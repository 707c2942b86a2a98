"""Runs inside the machine: tries what only newer kernels can judge, one word for each act.

`serve` is the outside: sockets that a sandbox must not reach, and a process of the same user.
"""

from __future__ import annotations

import json
import os
import select
import socket
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

FOLDER = "/var/tmp/acts"
PATHNAME = f"{FOLDER}/outside.sock"
ABSTRACT = "\0democrai-osguard-acts"
UDP = ("127.0.0.1", 7003)
TCP, OTHER_TCP = ("127.0.0.1", 7004), ("127.0.0.1", 7005)
FILE = f"{FOLDER}/file"
PID = f"{FOLDER}/pid"


def serve() -> None:
    """Listen on all of it until somebody ends this."""
    os.makedirs(FOLDER, exist_ok=True)
    streams = [socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)]
    for listener, name in zip(streams, (PATHNAME, ABSTRACT), strict=True):
        listener.bind(name)
        listener.listen(16)
    streams += [socket.create_server(address, backlog=16) for address in (TCP, OTHER_TCP)]
    datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    datagrams.bind(UDP)
    for path, text in ((FILE, "contents"), (PID, str(os.getpid()))):
        with open(path, "w", encoding="ascii") as file:
            file.write(text)
    while True:
        for ready in select.select(streams, [], [])[0]:
            ready.accept()[0].close()


def _unix(name: str) -> None:
    with socket.socket(socket.AF_UNIX) as talk:
        talk.connect(name)


def _tcp(address: tuple[str, int]) -> None:
    socket.create_connection(address, 20).close()


def _datagram() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as talk:
        talk.sendto(b"x", UDP)


def _signal() -> None:
    with open(PID, encoding="ascii") as file:
        os.kill(int(file.read()), 0)


ACTS: dict[str, Callable[[], object]] = {
    "unix socket": lambda: socket.socket(socket.AF_UNIX).close(),
    "pathname": lambda: _unix(PATHNAME),
    "abstract": lambda: _unix(ABSTRACT),
    "tcp": lambda: _tcp(TCP),
    "other tcp": lambda: _tcp(OTHER_TCP),
    "udp": _datagram,
    "signal": _signal,
    "truncate": lambda: os.truncate(FILE, 8),  # to the size that it has: no harm where it works
}


def outcome(act: Callable[[], object]) -> str:
    """Try it; say whether it was allowed."""
    try:
        act()
    except OSError as error:
        return "refused" if isinstance(error, PermissionError) else str(error)
    return "allowed"


if __name__ == "__main__":
    if sys.argv[1:] == ["serve"]:
        serve()
    sys.stdout.write(json.dumps({name: outcome(act) for name, act in ACTS.items()}) + "\n")
