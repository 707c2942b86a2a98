"""Runs inside the machine: answers `ok` to every connection on the addresses given."""

from __future__ import annotations

import contextlib
import select
import socket
import sys


def main(port: int, addresses: list[str]) -> None:
    """Answer until somebody ends it."""
    listeners = [socket.create_server((address, port), backlog=64) for address in addresses]
    while True:
        for listener in select.select(listeners, [], [])[0]:
            client, _ = listener.accept()
            with client, contextlib.suppress(OSError):
                client.send(b"ok")


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
