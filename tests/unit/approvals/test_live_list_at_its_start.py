"""The live list misses nothing that changes while it starts."""

from __future__ import annotations

import os
import pty
import select
import sys
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from approvals.cases import ADA, read

from democrai_osguard.approvals import ApprovalService, open_store
from democrai_osguard.cli.output import printable
from democrai_osguard.ui.live_screen import run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pytest

    from democrai_osguard.approvals.records import PendingRequest

PATIENCE = 60.0


class Moving(ApprovalService):
    """A store in which something is withdrawn just after it has been read for the first time."""

    moved = False

    def list_requests(self, *, pending: bool = True) -> list[PendingRequest]:
        found = super().list_requests(pending=pending)
        if not self.moved:
            self.moved = True
            self.withdraw(found[0].id)
        return found


@contextmanager
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Be at a terminal; yield its other end."""
    ours, theirs = pty.openpty()
    with (
        open(theirs, closefd=False) as keyboard,
        open(theirs, "w") as screen,
        monkeypatch.context() as patched,
    ):
        patched.setattr(sys, "stdin", keyboard)
        patched.setattr(sys, "stdout", screen)
        yield ours
    os.close(ours)


def shows(seen: int, words: bytes) -> bool:
    """Read until the words are on the screen; tell whether they were, in time."""
    text, until = b"", time.monotonic() + PATIENCE
    while words not in text and time.monotonic() < until:
        if select.select([seen], [], [], 0.2)[0]:
            text += os.read(seen, 65536)
    return words in text


def test_what_changes_after_the_first_look_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = Moving(open_store(f"sqlite://{tmp_path}/store/s"))
    service.register(read("/srv/a"))
    with terminal(monkeypatch) as seen:
        listing = threading.Thread(target=run, args=(service, ADA, printable))
        listing.start()
        try:
            assert shows(seen, b"1 open request")
            assert shows(seen, b"0 open requests")
        finally:
            os.write(seen, b"q")
            while listing.is_alive():  # the screen says good-bye, and somebody must read that
                if select.select([seen], [], [], 0.05)[0]:
                    os.read(seen, 65536)
            listing.join()
    service.close()
