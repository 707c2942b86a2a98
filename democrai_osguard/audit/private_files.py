"""Files that only their owner may touch: the store, its key and the audit log.

A folder or file that somebody else could have written is refused, never repaired: what it holds
can no longer be trusted.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from democrai_osguard.errors import OsGuardError

if TYPE_CHECKING:
    from collections.abc import Callable

FOLDER_MODE = 0o700
FILE_MODE = 0o600
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


class UnsafeFile(OsGuardError, RuntimeError):
    """A private file or folder that others can write, or that belongs to somebody else."""

    code = "external_access_store_unsafe"

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{self.code}: {path!a} {reason}")


class NoFolder(OsGuardError, RuntimeError):
    """A private folder that cannot be made, as for an account without a home."""

    code = "external_access_store_missing"

    def __init__(self, path: str, error: OSError, named_by: str = "DEMOCRAI_STATE_DIR") -> None:
        self.folder = path
        self.error = error
        why = f"cannot be made: {error.strerror}; {named_by} names another place"
        super().__init__(f"{self.code}: {path!a} {why}")


def private_folder(path: str) -> str:
    """Return the folder as an absolute path, made with mode 0700 where it is missing."""
    folder = os.path.abspath(path)
    _make(folder)
    _check_owner(folder, os.lstat(folder), stat.S_ISDIR, "is not a folder")
    _check_above(folder)
    return folder


def check_private_file(path: str) -> None:
    """Raise UnsafeFile unless the file is ours alone to write; take others' reading away."""
    status = os.lstat(path)
    _check_owner(path, status, stat.S_ISREG, "is not a plain file")
    if stat.S_IMODE(status.st_mode) & 0o077:
        os.chmod(path, FILE_MODE)


def open_private(path: str, flags: int) -> int:
    """Return a descriptor of a private file, made with mode 0600 where `flags` create it."""
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, FILE_MODE)
    try:
        _check_owner(path, os.fstat(descriptor), stat.S_ISREG, "is not a plain file")
    except UnsafeFile:
        os.close(descriptor)
        raise
    return descriptor


def replace_private(path: str, content: bytes) -> None:
    """Write a private file so that a crash leaves the old content or the new, never a mix."""
    beside = f"{path}.new-{os.getpid()}"
    descriptor = open_private(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        os.write(descriptor, content)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.rename(beside, path)
    sync_folder(os.path.dirname(path))


def sync_folder(folder: str) -> None:
    """Make a new or renamed entry of the folder survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _make(folder: str) -> None:
    if os.path.lexists(folder):
        return
    _make(os.path.dirname(folder))
    try:
        os.mkdir(folder, FOLDER_MODE)
    except FileExistsError:
        return  # another process was quicker
    except OSError as error:
        raise NoFolder(folder, error) from error


def _check_owner(
    path: str, status: os.stat_result, is_kind: Callable[[int], bool], otherwise: str
) -> None:
    if not is_kind(status.st_mode):
        raise UnsafeFile(path, otherwise)
    if status.st_uid != os.geteuid():
        raise UnsafeFile(path, f"belongs to user {status.st_uid}; run this as that user")
    if status.st_mode & _WRITABLE_BY_OTHERS:
        mode = stat.S_IMODE(status.st_mode)
        raise UnsafeFile(path, f"can be written by others (mode {mode:04o}); chmod go-w it")


def _check_above(folder: str) -> None:
    # Whoever may rename a folder above ours may put another in its place.
    above = os.path.dirname(os.path.realpath(folder))
    while True:
        mode = os.stat(above).st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            raise UnsafeFile(folder, f"lies in {above!a}, which everybody can write")
        if above == "/":
            return
        above = os.path.dirname(above)
