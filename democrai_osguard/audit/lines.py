"""Records as lines of a file: the last one read, and one more written, whole or not at all."""

from __future__ import annotations

import errno
import os

from democrai_osguard.audit.record import RECORD_LIMIT, Record

_USUAL_TAIL = 8192


def write(descriptor: int, record: Record, *, durable: bool = True) -> None:
    """Append a record; where that fails the file is as it was."""
    line = record.line()
    start = os.fstat(descriptor).st_size
    try:
        if os.write(descriptor, line) != len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))  # noqa: TRY301 - as a full disk
        if durable:
            os.fsync(descriptor)
    except OSError:
        os.ftruncate(descriptor, start)  # a part of a record is no record
        raise


def end(descriptor: int) -> tuple[bool, Record | None]:
    """Return the last record, and whether a dying process left a part of one behind it."""
    size = os.fstat(descriptor).st_size
    tail = _tail(descriptor, size)
    whole, newline, part = tail.rpartition(b"\n")
    if part:
        os.ftruncate(descriptor, size - len(part))
    last = (whole + newline).splitlines(keepends=True)
    return bool(part), Record.read(last[-1]) if last else None


def last_record(descriptor: int) -> Record | None:
    """Return the last record of a file that nobody writes any more."""
    lines = _tail(descriptor, os.fstat(descriptor).st_size).splitlines(keepends=True)
    return Record.read(lines[-1]) if lines else None


def _tail(descriptor: int, size: int) -> bytes:
    """Return enough of the end to hold a whole record, and mostly not much more."""
    for length in (_USUAL_TAIL, 4 * RECORD_LIMIT):
        tail = os.pread(descriptor, length, max(0, size - length))
        if len(tail) == size or tail.count(b"\n") > 1 + (not tail.endswith(b"\n")):
            break
    return tail
