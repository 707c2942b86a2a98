"""The desired state on disk: one file per sandbox, readable by root alone, written whole or not.

It lies in a file system that ends with the boot, as the cgroups that it speaks of do.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from typing import TYPE_CHECKING, Final

from . import records
from .fields import ProtocolViolation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .records import Record

_SUFFIX: Final = ".json"
_LOCK: Final = "lock"
MAX_RECORD: Final = 8 * 1024 * 1024


class JournalFailed(Exception):
    """The state could not be written or read; nothing may be applied that is not written."""


class Journal:
    """The folder of one instance's records."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        try:
            os.makedirs(folder, mode=0o700, exist_ok=True)
            os.chmod(folder, 0o700)
            self._lock = os.open(f"{folder}/{_LOCK}", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise JournalFailed(f"{folder}: another helper is running on this state") from error
        except OSError as error:
            raise JournalFailed(f"{folder}: {error.strerror}") from error

    def save(self, record: Record) -> None:
        """Make the record durable before anything is done about it."""
        draft = f"{self._folder}/{record.name}.new"
        try:
            _write(draft, records.dump(record))
            os.rename(draft, self._path(record.name))
            self._sync()
        except OSError as error:
            with contextlib.suppress(OSError):  # the next start drops what is left of the draft
                _discard(draft)
            raise JournalFailed(f"{draft}: {error.strerror}") from error

    def forget(self, name: str) -> None:
        """Remove a record."""
        try:
            _discard(self._path(name))
            self._sync()
        except OSError as error:
            raise JournalFailed(f"{name}: {error.strerror}") from error

    def load(self) -> Iterator[tuple[str, Record | None]]:
        """Yield the name of each record, and the record unless it is damaged."""
        for entry in sorted(os.listdir(self._folder)):
            if entry.endswith(_SUFFIX):
                yield entry.removesuffix(_SUFFIX), self._read(f"{self._folder}/{entry}")
            elif entry != _LOCK:
                _discard(f"{self._folder}/{entry}")  # a draft that a crash left

    def close(self) -> None:
        """Let another helper have the state."""
        os.close(self._lock)

    def _path(self, name: str) -> str:
        return f"{self._folder}/{name}{_SUFFIX}"

    def _sync(self) -> None:
        folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    @staticmethod
    def _read(path: str) -> Record | None:
        with open(path, "rb") as file:
            payload = file.read(MAX_RECORD)
        try:
            return records.parse(payload)
        except ProtocolViolation:
            return None


def _write(path: str, payload: bytes) -> None:
    flags = os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(path, flags, 0o600)
    try:
        view = memoryview(payload)
        while view:
            view = view[os.write(descriptor, view) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _discard(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return
