"""Runs inside a sandbox: tries two addresses again and again, and writes a line about each pair."""

from __future__ import annotations

import sys
import time
from socket import create_connection

PATIENCE = 20.0  # seconds: an emulated machine may be very slow


def outcome(address: str, port: int) -> str:
    """Connect, and say in one word what came of it."""
    try:
        with create_connection((address, port), timeout=PATIENCE) as talk:
            return talk.recv(2).decode() or "silent"
    except OSError as error:
        return type(error).__name__


def main(port: int, allowed: str, forbidden: str) -> None:
    """Try until somebody ends it."""
    while True:
        line = f"allowed={outcome(allowed, port)} forbidden={outcome(forbidden, port)}\n"
        sys.stdout.write(line)
        sys.stdout.flush()
        time.sleep(0.2)


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
