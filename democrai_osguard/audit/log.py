"""The audit log of one folder: appended by many processes, one at a time.

The newest file is `audit.jsonl`; full ones are renamed `audit-<first number>.jsonl`, and the chain
runs on through them. `audit.head` names the last record, so that a lost end is noticed. Of the
oldest full files only the refusals go: what let something through is kept in `kept.jsonl`.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import time
from typing import TYPE_CHECKING

from democrai_osguard.audit.keeping import keep
from democrai_osguard.audit.lines import end, last_record, write
from democrai_osguard.audit.private_files import (
    UnsafeFile,
    open_private,
    private_folder,
    sync_folder,
)
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

_log = logging.getLogger("democrai_osguard.audit")


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
                record, full = self._append(event, fields or {}, durable=durable)
                if full:
                    self._try_to_rotate(record)
                return record
        except (OSError, RecordError) as error:
            raise AuditFailed(f"{AuditFailed.code}: {error}") from error

    def _append(
        self, event: str, fields: Mapping[str, object], *, durable: bool
    ) -> tuple[Record, bool]:
        """Append a record; return it, and whether the file is full now."""
        path = os.path.join(self.folder, CURRENT)
        descriptor = open_private(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        try:
            torn, last = end(descriptor)
            if last is None:
                last = self._last_rotated()
            if torn:
                last = self._write(descriptor, Record.after(last, self._clock(), "torn", {}))
            record = Record.after(last, self._clock(), event, fields)
            self._write(descriptor, record, durable=durable)
            return record, os.fstat(descriptor).st_size >= self._rotate_bytes
        finally:
            os.close(descriptor)

    def _write(self, descriptor: int, record: Record, *, durable: bool = True) -> Record:
        """Write a record and name it as the last one, both or neither."""
        start = os.fstat(descriptor).st_size
        write(descriptor, record, durable=durable)
        try:
            self._write_head(record)
        except OSError:
            os.ftruncate(descriptor, start)
            raise
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
            return last_record(descriptor)
        finally:
            os.close(descriptor)

    def _try_to_rotate(self, last: Record) -> None:
        try:
            self._rotate(last)
        except (OSError, RecordError, UnsafeFile):
            # The record is written; a file that grows on is tried again with the next one.
            _log.exception("the audit log could not be rotated")

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
        kept = keep(self.folder, surplus, self._clock())
        if kept is None:
            return
        path = os.path.join(self.folder, CURRENT)
        descriptor = open_private(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        try:
            note = Record.after(last, self._clock(), "pruned", kept.fields())
            self._write(descriptor, note)
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
