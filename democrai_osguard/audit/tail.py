"""The newest records of the audit log, for people to look at. It vouches for nothing."""

from __future__ import annotations

import os

from democrai_osguard.audit.log import CURRENT, rotated
from democrai_osguard.audit.record import RECORD_LIMIT, Record, RecordError


def recent(folder: str, event: str, limit: int = 100) -> list[Record]:
    """Return the newest records of an event, newest first, as far as a short read reaches."""
    try:
        names = [*rotated(folder)[-1:], CURRENT]  # a file that has just begun says little
    except OSError:
        return []
    lines = [line for name in names for line in _last_lines(os.path.join(folder, name))]
    found: list[Record] = []
    for line in reversed(lines):
        try:
            record = Record.read(line)
        except RecordError:
            continue  # cut by the read, or being written
        if record.event == event:
            found.append(record)
        if len(found) == limit:
            break
    return found


def _last_lines(path: str) -> list[bytes]:
    try:
        with open(path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - 2 * RECORD_LIMIT))
            return file.read().splitlines(keepends=True)
    except OSError:
        return []
