"""What must be true once the load is over: nothing left behind, nothing unaccounted for."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from soak.parts import service_of

from democrai_osguard.audit import verify
from democrai_osguard.audit.keeping import KEPT, kept_record
from democrai_osguard.audit.record import Record
from democrai_osguard.audit.verify import read_records
from democrai_osguard_helper.cgroups import find_mount

if TYPE_CHECKING:
    from collections.abc import Iterator

_SECONDS = 30


def firewall() -> list[str]:
    """Return the rules and sets of this network namespace, without their counters."""
    saved = [
        subprocess.run([program], capture_output=True, text=True, check=True).stdout
        for program in ("iptables-save", "ip6tables-save")
    ]
    sets = subprocess.run(["ipset", "save"], capture_output=True, text=True, check=True).stdout
    lines = [line for text in (*saved, sets) for line in text.splitlines()]
    return sorted(line.partition(" [")[0] for line in lines if not line.startswith("#"))


def cgroups(instance: str) -> list[str]:
    """Return the cgroups that an instance of the helper left."""
    return [folder for folder, _, _ in os.walk(find_mount()) if f"/{instance}" in folder]


def decisions(folder: Path) -> Counter[str]:
    """Check that what came back was committed, and what was committed is in an unbroken log."""
    audit = f"{folder}/state/audit"
    report = verify(audit)
    assert report.sound, report.flaws[:5]
    service = service_of(folder)
    committed = {entry.id: _text(entry.document()) for entry in service.list_history(limit=2**31)}
    service.close()
    recorded = Counter(_recorded(audit))
    acknowledged = [int(line) for line in (folder / "acknowledged").read_text().split()]
    lost = [number for number in acknowledged if number not in committed]
    assert not lost, f"acknowledged and lost: {lost[:5]}"
    unrecorded = [number for number, text in committed.items() if recorded[text] != 1]
    assert not unrecorded, f"committed and not recorded once: {unrecorded[:5]}"
    return Counter(
        {
            "decisions committed": len(committed),
            "records of decisions that were cut off": recorded.total() - len(committed),
        }
    )


def rows(folder: Path, open_at_most: int) -> None:
    """Check that a store holds what stands and what waits, and nothing that is over.

    Nothing in it was decided twice, so what stands is what was decided and not revoked.
    """
    with contextlib.closing(sqlite3.connect(_database(folder))) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    service = service_of(folder)
    acts = Counter(entry.act for entry in service.list_history(limit=2**31))
    standing, waiting = service.store.standing(limit=2**31), service.list_requests()
    ended = acts["revoke"] + acts["end_session"]
    assert len(standing) == acts["approve"] + acts["deny"] - ended, "rows were left"
    assert len(waiting) <= open_at_most, f"{len(waiting)} questions were left open"
    for session in {each.session_key for each in standing if each.session_key}:
        service.end_session(session)
    assert not [each for each in service.store.standing(limit=2**31) if each.session_key], (
        "a session is left"
    )
    service.close()


def _database(folder: Path) -> str:
    return f"{folder}/state/approvals/approvals.sqlite3"


def _recorded(folder: str) -> Iterator[str]:
    """Yield each decision in the log; what was kept of files that went may still be in one, too."""
    whole = {each.number: each for each in (*_kept(folder), *_read(folder))}
    for record in whole.values():
        if record.event == "decision":
            yield _text(record.fields["decision"])


def _read(folder: str) -> Iterator[Record]:
    return (record for _, record in read_records(folder) if isinstance(record, Record))


def _kept(folder: str) -> Iterator[Record]:
    with contextlib.suppress(FileNotFoundError), Path(folder, KEPT).open("rb") as file:
        for line in file:
            yield kept_record(Record.read(line))


def _text(document: object) -> str:
    return json.dumps(document, sort_keys=True)


def no_process_is_left() -> None:
    """Fail if a descendant is still there; the orphans of this process come back to it."""
    own = Path(f"/proc/self/task/{os.getpid()}/children")
    until = time.monotonic() + _SECONDS
    while children := own.read_text(encoding="ascii").split():
        assert time.monotonic() < until, [_name(pid) for pid in children]
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.05)


def _name(pid: str) -> str:
    return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
