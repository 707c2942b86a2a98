"""The desired state on disk: one file per sandbox, readable by root alone, written whole or not.

It lies in a file system that ends with the boot, as the cgroups that it speaks of do.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import stat
from typing import TYPE_CHECKING, Final

from . import records
from .fields import ProtocolViolation
from .folders import make_parents

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .records import Record

_SUFFIX: Final = ".json"
_LOCK: Final = "lock"
_RECORD: Final = re.compile(r"[0-9a-f]{12}\.json")
MAX_RECORD: Final = 8 * 1024 * 1024


class JournalFailed(Exception):
    """The state could not be written or read; nothing may be applied that is not written."""


class Journal:
    """The folder of one instance's records."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        try:
            make_parents(os.path.dirname(folder))  # where others may have to pass
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
        payload = records.dump(record)
        if len(payload) > MAX_RECORD:
            raise JournalFailed(f"a record of {len(payload)} bytes: at most {MAX_RECORD}")
        try:
            _write(draft, payload)
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
            path, name = f"{self._folder}/{entry}", entry.removesuffix(_SUFFIX)
            if _RECORD.fullmatch(entry) and stat.S_ISREG(os.lstat(path).st_mode):
                record = self._read(path)
                # One that was put under another name speaks of another cgroup.
                yield name, record if record is not None and record.name == name else None
            elif entry != _LOCK:
                with contextlib.suppress(OSError):  # a draft that a crash left; else not ours
                    _discard(path)

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
        try:
            with open(path, "rb") as file:
                return records.parse(file.read(MAX_RECORD))
        except (ProtocolViolation, OSError):  # what the disk does not give back is damaged too
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
