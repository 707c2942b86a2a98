"""The sandboxes that run now, as their environment names them, and what they were refused.

Only processes of the same user can be seen. A process can change what it shows of itself, so this
is for people to look at; nothing is decided by it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_KIND = b"DEMOCRAI_NETWORK_SUBJECT_KIND="
_NAME = b"DEMOCRAI_NETWORK_SUBJECT="
_ENVIRON_LIMIT = 256 * 1024
_COMMAND_LIMIT = 200


@dataclass(frozen=True, slots=True)
class Sandbox:
    """A confined process that was not started by one of the same sandbox."""

    pid: int
    subject: str
    command: str

    def document(self) -> dict[str, object]:
        """Return it as interfaces show it."""
        return {"pid": self.pid, "subject": self.subject, "command": self.command}


def running() -> list[Sandbox]:
    """Return the sandboxes that this user can see."""
    seen = {pid: subject for pid in _pids() if (subject := _subject(pid)) is not None}
    return [
        Sandbox(pid, subject, _command(pid))
        for pid, subject in sorted(seen.items())
        if seen.get(_parent(pid)) != subject
    ]


def _pids() -> Iterator[int]:
    own = os.geteuid()
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            try:
                if os.stat(f"/proc/{name}").st_uid == own:
                    yield int(name)
            except OSError:
                continue  # it has ended


def _subject(pid: int) -> str | None:
    fields = _read(pid, "environ").split(b"\0")
    kind = next((field[len(_KIND) :] for field in fields if field.startswith(_KIND)), None)
    name = next((field[len(_NAME) :] for field in fields if field.startswith(_NAME)), None)
    if name is None:
        return None
    return f"{os.fsdecode(kind or b'module')}:{os.fsdecode(name)}"


def _command(pid: int) -> str:
    words = os.fsdecode(_read(pid, "cmdline")).split("\0")
    return " ".join(filter(None, words))[:_COMMAND_LIMIT]


def _parent(pid: int) -> int:
    fields = _read(pid, "stat").rpartition(b")")[2].split()
    return int(fields[1]) if len(fields) > 1 else 0


def _read(pid: int, name: str) -> bytes:
    try:
        with open(f"/proc/{pid}/{name}", "rb") as file:
            return file.read(_ENVIRON_LIMIT)
    except OSError:
        return b""  # it has ended, or is not ours to read
