"""The keys that seal resume contexts: in a file of their own, never in the database.

One key a line, the newest first: an id and the key in base64. systemd may hand the file in as the
credential `democrai-resume-keys`; then it is read-only, and rotated where it is made.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import os
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from democrai_osguard.approvals.errors import ResumeFailed
from democrai_osguard.audit.private_files import open_private, private_folder, replace_private

if TYPE_CHECKING:
    from collections.abc import Iterator

CREDENTIAL = "democrai-resume-keys"
ID_BYTES = 8
_KEY_BYTES = 32
_FILE_LIMIT = 64 * 1024


@dataclass(frozen=True, slots=True)
class Key:
    """One key. Its repr does not show it."""

    id: bytes
    secret: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class KeyRing:
    """Keys, the newest first: it seals, all of them open."""

    keys: tuple[Key, ...]

    @property
    def newest(self) -> Key:
        """The key that seals."""
        return self.keys[0]

    def find(self, key_id: bytes) -> Key | None:
        """Return the key of an id."""
        return next((key for key in self.keys if key.id == key_id), None)


class KeyFile:
    """Where the keys are kept."""

    def __init__(self, path: str, credentials: str | None = None) -> None:
        self.path = os.path.abspath(path)
        self._handed_in = _credential(credentials)

    @property
    def place(self) -> str:
        """The file that the keys are read from."""
        return self._handed_in or self.path

    def load(self) -> KeyRing:
        """Return the keys, made on first use; raise ResumeFailed where they cannot be read."""
        if self._handed_in is not None:
            return _parse(_read(self._handed_in, private=False), self._handed_in)
        if not os.path.lexists(self.path):
            with self._locked():
                if not os.path.lexists(self.path):
                    self._write((_fresh(),))
        return _parse(_read(self.path, private=True), self.path)

    def rotate(self) -> KeyRing:
        """Put a fresh key in front; the old ones still open what they sealed."""
        with self._changing():
            return self._write((_fresh(), *self.load().keys))

    def drop_old(self) -> KeyRing:
        """Keep only the newest key. Contexts must have been sealed anew before."""
        with self._changing():
            return self._write((self.load().newest,))

    def _write(self, keys: tuple[Key, ...]) -> KeyRing:
        text = "".join(f"{k.id.hex()} {base64.b64encode(k.secret).decode()}\n" for k in keys)
        replace_private(self.path, text.encode("ascii"))
        return KeyRing(keys)

    @contextlib.contextmanager
    def _changing(self) -> Iterator[None]:
        if self._handed_in is not None:
            raise ResumeFailed("the keys are handed in by systemd; rotate the credential there")
        self.load()
        with self._locked():
            yield

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        private_folder(os.path.dirname(self.path))
        descriptor = open_private(f"{self.path}.lock", os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def _credential(folder: str | None) -> str | None:
    folder = folder or os.environ.get("CREDENTIALS_DIRECTORY")
    path = None if not folder else os.path.join(folder, CREDENTIAL)
    return path if path is not None and os.path.exists(path) else None


def _fresh() -> Key:
    return Key(secrets.token_bytes(ID_BYTES), secrets.token_bytes(_KEY_BYTES))


def _read(path: str, *, private: bool) -> bytes:
    try:
        # systemd's credentials belong to root and are readable by the service alone.
        descriptor = open_private(path, os.O_RDONLY) if private else os.open(path, os.O_RDONLY)
    except OSError as error:
        raise ResumeFailed(f"the keys in {path!a} cannot be read: {error.strerror}") from error
    try:
        if private and os.fstat(descriptor).st_mode & 0o077:
            raise ResumeFailed(f"the keys in {path!a} can be read by others; rotate them")
        return os.read(descriptor, _FILE_LIMIT)
    finally:
        os.close(descriptor)


def _parse(raw: bytes, path: str) -> KeyRing:
    keys = []
    for number, line in enumerate(raw.decode("ascii", "replace").splitlines(), 1):
        words = line.split()
        try:
            key = Key(bytes.fromhex(words[0]), base64.b64decode(words[1], validate=True))
        except (ValueError, IndexError):
            key = Key(b"", b"")
        if len(key.id) != ID_BYTES or len(key.secret) != _KEY_BYTES:
            raise ResumeFailed(f"{path!a} line {number}: not a key") from None
        keys.append(key)
    if not keys:
        raise ResumeFailed(f"{path!a} has no key")
    return KeyRing(tuple(keys))
