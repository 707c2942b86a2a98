"""Killed at any moment: the store is whole, and nothing that was acknowledged is gone."""

from __future__ import annotations

import os
import random
import select
import signal
import sqlite3
import time
from typing import TYPE_CHECKING

import pytest
from approvals.cases import ADA, read

from democrai_osguard.approvals import ApprovalService, open_store
from democrai_osguard.audit import AuditLog, verify

if TYPE_CHECKING:
    from pathlib import Path

KILLS = 300  # on a server, of its clients


def _decide_until_killed(url: str, audit: str, start: int, says: int) -> None:
    """Decide one request after the other, and name each that was acknowledged."""
    service = ApprovalService(open_store(url), audit=AuditLog(audit))
    number = start
    while True:
        asked = service.register(read(f"/srv/{number}"))
        if service.approve_permanently(asked.id, ADA).applied:
            os.write(says, f"{number}\n".encode())
        number += 1


def _killed(url: str, audit: str, start: int, patience: float) -> list[int]:
    """Return what a process acknowledged before it was killed."""
    hears, says = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            _decide_until_killed(url, audit, start, says)
        finally:
            os._exit(1)
    os.close(says)
    if random.random() < 0.7:  # noqa: S311 - no secret; else it may die while it opens the store
        select.select([hears], [], [], 60)
    time.sleep(patience)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    with os.fdopen(hears) as pipe:
        return [int(line) for line in pipe.read().split()]


@pytest.mark.always
def test_killed_processes_lose_nothing_that_was_acknowledged(
    store_url: str, tmp_path: Path
) -> None:
    audit = f"{tmp_path}/audit"
    open_store(store_url).close()
    acknowledged: list[int] = []
    for _ in range(KILLS):
        start = acknowledged[-1] + 1 if acknowledged else 0
        acknowledged += _killed(store_url, audit, start, random.uniform(0, 0.02))  # noqa: S311 - no secret
    if store_url.startswith("sqlite"):
        _check_file(store_url.removeprefix("sqlite://"))
    service = ApprovalService(open_store(store_url))
    missing = [n for n in acknowledged if service.check(read(f"/srv/{n}")).code == "not_enabled"]
    service.close()
    assert len(acknowledged) >= KILLS / 2
    assert missing == []
    assert verify(audit).flaws == []


def _check_file(path: str) -> None:
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    connection.close()
