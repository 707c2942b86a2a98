"""Whose limits count for a user: subordinate users take from whoever was given them.

A user may be given thousands of others (subuid(5)) and act as each of them. What they may take of
the daemon is counted together with what that user takes; what is theirs stays theirs.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from .crowd import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

SUBUID: Final = "/etc/subuid"
PASSWD: Final = "/etc/passwd"  # noqa: S105 - read for numbers of users; no service is asked
_FIELDS: Final = 3
_MAX_KNOWN: Final = 65536
_MAX_BYTES: Final = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Given:
    """A range of users, and for whom they count."""

    first: int
    count: int
    account: int

    def holds(self, uid: int) -> bool:
        """Tell whether a user is one of them."""
        return self.first <= uid < self.first + self.count


def ranges(subuid: str, passwd: str) -> tuple[Given, ...]:
    """Read who was given which users; a line that says nothing is passed over. Pure.

    Root's, and those of somebody who is not in this file, count together as their first one: a
    container's user is not root to us.
    """
    numbers = dict(_numbers(passwd))
    firsts: dict[str, int] = {}
    found = []
    for line in subuid.splitlines():
        owner, *rest = line.strip().split(":")
        if len(rest) != _FIELDS - 1 or not all(map(_is_number, rest)):
            continue
        first, count = map(int, rest)
        account = int(owner) if _is_number(owner) else numbers.get(owner, ROOT)
        together = firsts.setdefault(owner, first or 1)  # nobody but root counts as root
        found.append(Given(first, count, account or together))
    return tuple(found)


def _numbers(passwd: str) -> Iterator[tuple[str, int]]:
    for line in passwd.splitlines():
        name, _, number, *_ = (*line.split(":"), "", "", "")
        if _is_number(number):
            yield name, int(number)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


class Accounts:
    """Answers for whom a user counts; reads the files again when they have changed."""

    def __init__(self, subuid: str = SUBUID, passwd: str = PASSWD) -> None:
        self._paths = subuid, passwd
        self._seen: object = None
        self._ranges: tuple[Given, ...] = ()
        self._known: dict[int, int] = {}
        self.refresh()

    def of(self, uid: int) -> int:
        """Return the user for whom this one counts: mostly itself."""
        if uid not in self._known:
            holding = (each.account for each in self._ranges if each.holds(uid))
            self._known[uid] = uid if uid == ROOT else next(holding, uid)
        return self._known[uid]

    def refresh(self) -> None:
        """Look whether the files are others than before."""
        seen = tuple(map(_stamp, self._paths))
        if seen != self._seen:
            self._seen = seen
            self._ranges = ranges(*map(_read, self._paths))
            self._known = {}
        elif len(self._known) > _MAX_KNOWN:
            self._known = {}


def _stamp(path: str) -> object:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(_MAX_BYTES)
    except OSError:
        return ""  # nobody was given anybody
