"""The audit log of one folder: appended by many processes, one at a time.

The newest file is `audit.jsonl`; full ones are renamed `audit-<first number>.jsonl`, and the chain
runs on through them. `audit.head` names the last record, so that a lost end is noticed.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from typing import TYPE_CHECKING

from democrai_osguard.audit.private_files import open_private, private_folder, sync_folder
from democrai_osguard.audit.record import RECORD_LIMIT, Record, RecordError
from democrai_osguard.errors import OsGuardError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

CURRENT = "audit.jsonl"
HEAD = "audit.head"
_LOCK = "audit.lock"
ROTATE_BYTES = 16 * 1024 * 1024
KEEP_FILES = 64  # full files beside the current one
LOCK_SECONDS = 5.0
_POLL_SECONDS = 0.001
_USUAL_TAIL = 8192


class AuditFailed(OsGuardError, RuntimeError):
    """The log could not be written. What it was to record must not happen either."""

    code = "audit_log_failed"


class AuditLog:
    """Appends records. Safe for threads and processes; each append is whole or absent."""

    def __init__(
        self,
        folder: str,
        *,
        rotate_bytes: int = ROTATE_BYTES,
        keep_files: int = KEEP_FILES,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.folder = private_folder(folder)
        self._rotate_bytes = max(rotate_bytes, RECORD_LIMIT // 64)
        self._keep_files = keep_files
        self._clock = clock

    def record(
        self, event: str, fields: Mapping[str, object] | None = None, *, durable: bool = True
    ) -> Record:
        """Append one record and return it; raise AuditFailed where that is not possible.

        A durable record survives a power cut, and costs a write to the disk.
        """
        try:
            with self._locked():
                return self._append(event, fields or {}, durable=durable)
        except (OSError, RecordError) as error:
            raise AuditFailed(f"{AuditFailed.code}: {error}") from error

    def _append(self, event: str, fields: Mapping[str, object], *, durable: bool) -> Record:
        path = os.path.join(self.folder, CURRENT)
        descriptor = open_private(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        try:
            torn, last = _end(descriptor)
            if last is None:
                last = self._last_rotated()
            if torn:
                last = _write(descriptor, Record.after(last, self._clock(), "torn", {}), durable)
            record = _write(descriptor, Record.after(last, self._clock(), event, fields), durable)
            self._write_head(record)
            full = os.fstat(descriptor).st_size >= self._rotate_bytes
        finally:
            os.close(descriptor)
        if full:
            self._rotate(record)
        return record

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        descriptor = open_private(os.path.join(self.folder, _LOCK), os.O_RDWR | os.O_CREAT)
        try:
            _lock(descriptor)
            yield
        finally:
            os.close(descriptor)

    def _write_head(self, record: Record) -> None:
        # One short write in place: it is within a disk block, so it is old or new.
        path = os.path.join(self.folder, HEAD)
        descriptor = open_private(path, os.O_WRONLY | os.O_CREAT)
        try:
            os.pwrite(descriptor, f"{record.number:020d} {record.hash}\n".encode("ascii"), 0)
        finally:
            os.close(descriptor)

    def _last_rotated(self) -> Record | None:
        files = rotated(self.folder)
        if not files:
            return None
        descriptor = open_private(os.path.join(self.folder, files[-1]), os.O_RDONLY)
        try:
            return _last_record(descriptor)
        finally:
            os.close(descriptor)

    def _rotate(self, last: Record) -> None:
        current = os.path.join(self.folder, CURRENT)
        with open(current, "rb") as file:
            first = Record.read(file.readline()).number
        os.rename(current, os.path.join(self.folder, f"audit-{first:020d}.jsonl"))
        sync_folder(self.folder)
        surplus = rotated(self.folder)[: -self._keep_files or None]
        if surplus:
            self._prune(surplus, last)

    def _prune(self, surplus: list[str], last: Record) -> None:
        """Remove the oldest files; the log itself says how far, so that no one else can."""
        descriptor = open_private(os.path.join(self.folder, surplus[-1]), os.O_RDONLY)
        try:
            gone = _last_record(descriptor)
        finally:
            os.close(descriptor)
        if gone is None:
            return
        path = os.path.join(self.folder, CURRENT)
        descriptor = open_private(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        try:
            through = {"through": gone.number, "through_hash": gone.hash}
            note = Record.after(last, self._clock(), "pruned", through)
            self._write_head(_write(descriptor, note, durable=True))
        finally:
            os.close(descriptor)
        for name in surplus:
            os.unlink(os.path.join(self.folder, name))


def _lock(descriptor: int) -> None:
    """Take the lock; a process that was stopped with it must not stop everybody else."""
    until = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                raise
            time.sleep(_POLL_SECONDS)
        else:
            return


def rotated(folder: str) -> list[str]:
    """Return the names of the full files, oldest first."""
    return sorted(
        name for name in os.listdir(folder) if name.startswith("audit-") and name.endswith(".jsonl")
    )


def _write(descriptor: int, record: Record, durable: bool) -> Record:  # noqa: FBT001 - private
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
    return record


def _end(descriptor: int) -> tuple[bool, Record | None]:
    """Return the last record, and whether a dying process left a part of one behind it."""
    size = os.fstat(descriptor).st_size
    tail = _tail(descriptor, size)
    whole, newline, part = tail.rpartition(b"\n")
    if part:
        os.ftruncate(descriptor, size - len(part))
    last = (whole + newline).splitlines(keepends=True)
    return bool(part), Record.read(last[-1]) if last else None


def _tail(descriptor: int, size: int) -> bytes:
    """Return enough of the end to hold a whole record, and mostly not much more."""
    for length in (_USUAL_TAIL, 2 * RECORD_LIMIT):
        tail = os.pread(descriptor, length, max(0, size - length))
        if len(tail) == size or tail.count(b"\n") > 1 + (not tail.endswith(b"\n")):
            break
    return tail


def _last_record(descriptor: int) -> Record | None:
    lines = _tail(descriptor, os.fstat(descriptor).st_size).splitlines(keepends=True)
    return Record.read(lines[-1]) if lines else None
