"""Walks the chain of the audit log and names what was changed, lost or moved. Reads only."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from democrai_osguard.audit.keeping import KEPT, kept_record
from democrai_osguard.audit.log import CURRENT, HEAD, rotated
from democrai_osguard.audit.record import START, Record, RecordError

if TYPE_CHECKING:
    from collections.abc import Iterator


_GAP_LIMIT = 1000  # so many missing records of one gap are named one by one


@dataclass(frozen=True, slots=True)
class Flaw:
    """One place where the chain does not hold."""

    kind: str  # changed, missing, reordered, unreadable
    where: str  # file and line
    words: str


@dataclass(slots=True)
class Report:
    """What a walk over the whole log found."""

    records: int = 0
    first: int | None = None
    last: int | None = None
    kept: int = 0  # records whose files are gone
    flaws: list[Flaw] = field(default_factory=list)

    @property
    def sound(self) -> bool:
        """Whether every record stands where it was written, unchanged."""
        return not self.flaws


def read_records(folder: str) -> Iterator[tuple[str, Record | RecordError]]:
    """Yield each line's place and its record, or what is wrong with it."""
    names = [*rotated(folder), CURRENT] if os.path.isdir(folder) else []
    yield from _read(folder, names)


def _read(folder: str, names: list[str]) -> Iterator[tuple[str, Record | RecordError]]:
    for name in names:
        path = os.path.join(folder, name)
        if not os.path.exists(path):
            continue
        with open(path, "rb") as file:
            for number, line in enumerate(file, 1):
                place = f"{name} line {number}"
                try:
                    yield place, Record.read(line)
                except RecordError as error:
                    yield place, error


def verify(folder: str) -> Report:
    """Return what is wrong with the log in a folder, if anything is."""
    walk = _Walk(_head(folder))
    for where, record in read_records(folder):
        walk.step(where, record)
    report = walk.finish()
    kept = _Walk(walk.end_of_kept, "kept ")
    for where, record in _read(folder, [KEPT]):
        kept.step(where, _whole(record))
    found = kept.finish()
    report.kept = found.records
    report.flaws += found.flaws
    return report


def _whole(kept: Record | RecordError) -> Record | RecordError:
    """Return a kept record if what it holds is a record too."""
    try:
        if isinstance(kept, Record):
            kept_record(kept)
    except RecordError as error:
        return error
    return kept


class _Walk:
    """Follows the chain record by record."""

    def __init__(self, head: tuple[int, str] | None, chain: str = "") -> None:
        self._report = Report()
        self._head = head
        self._chain = chain  # what sets its records apart in words
        self.end_of_kept: tuple[int, str] = 0, ""
        self._last: Record | None = None
        self._front: Record | None = None  # the first one, where it is not number 1
        self._pruned: dict[int, str] = {}
        self._gaps: list[tuple[str, int, int]] = []
        self._moved: set[int] = set()
        self._unread = 0

    def step(self, where: str, record: Record | RecordError) -> None:
        """Take the next line."""
        if isinstance(record, RecordError):
            kind = "unreadable" if "not a record" in str(record) else "changed"
            self._flaw(kind, where, str(record))
            self._unread += 1
            return
        self._report.records += 1
        self._note_pruning(record)
        if self._last is None:
            self._begin(record)
        elif record.number <= self._last.number:
            self._moved.add(record.number)
            words = f"record {record.number} stands after record {self._last.number}"
            self._flaw("reordered", where, words)
            return
        else:
            self._follow(where, self._last, record)
        self._check_head(record)
        self._last, self._unread = record, 0

    def finish(self) -> Report:
        """Report gaps that nothing fills, and the two ends."""
        for where, first, last in self._gaps:
            for number in range(first, last + 1):
                if number not in self._moved:
                    self._flaw("missing", where, f"record {number} is missing")
        front = self._front
        if front is not None and self._pruned.get(front.number - 1) != front.previous:
            self._flaw("missing", "the start", _missing(1, front.number - 1))
        self._finish_end()
        return self._report

    def _note_pruning(self, record: Record) -> None:
        through = record.fields.get("through")
        if record.event == "pruned" and isinstance(through, int):
            self._pruned[through] = str(record.fields.get("through_hash"))
            kept = record.fields.get("kept")
            if isinstance(kept, int):
                self.end_of_kept = kept, str(record.fields.get("kept_hash"))

    def _begin(self, record: Record) -> None:
        self._report.first = self._report.last = record.number
        if record.previous != START and record.number > self._unread + 1:
            self._front = record

    def _follow(self, where: str, last: Record, record: Record) -> None:
        self._report.last = record.number
        first = last.number + 1 + self._unread  # unread lines are reported already
        if record.number > first:
            self._gaps.append((where, first, min(record.number - 1, first + _GAP_LIMIT)))
        elif record.number == last.number + 1 and record.previous != last.hash:
            words = f"record {record.number} does not follow record {last.number} as it stands"
            self._flaw("changed", where, f"{words}: one of the two was replaced")

    def _check_head(self, record: Record) -> None:
        number, digest = self._head or (0, "")
        if number == record.number and digest != record.hash:
            words = f"record {record.number} is not the one that was written last"
            self._flaw("changed", "the end", words)

    def _finish_end(self) -> None:
        last = self._report.last or 0
        if self._head is None:
            if self._report.records > 1:
                self._flaw("missing", "the end", f"{HEAD}, which names the last record, is missing")
        elif self._head[0] > last:
            self._flaw("missing", "the end", _missing(last + 1, self._head[0]))

    def _flaw(self, kind: str, where: str, words: str) -> None:
        place = f"{KEPT}, {where}" if self._chain and KEPT not in where else where
        self._report.flaws.append(Flaw(kind, place, f"{self._chain}{words}"))


def _missing(first: int, last: int) -> str:
    return f"record {first} is missing" if first == last else f"records {first} to {last} missing"


def _head(folder: str) -> tuple[int, str] | None:
    try:
        with open(os.path.join(folder, HEAD), encoding="ascii") as file:
            number, _, digest = file.read(128).strip().partition(" ")
        return int(number), digest
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        return 0, ""
