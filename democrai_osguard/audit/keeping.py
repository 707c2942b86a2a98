"""What outlives its file: of the oldest full files, all but refusals goes on in `kept.jsonl`.

However much is refused, no decision is pushed out by it. The kept records are a chain of their
own, each holding the whole record that it keeps; the log names the chain's last one.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from democrai_osguard.audit.lines import end, write
from democrai_osguard.audit.private_files import open_private, sync_folder
from democrai_osguard.audit.record import RECORD_LIMIT, Record, RecordError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

KEPT = "kept.jsonl"
GOES = frozenset({"refusal", "refusals_omitted"})
_LIMIT = RECORD_LIMIT + 1024  # a record inside another


@dataclass(frozen=True, slots=True)
class Pruned:
    """How far the log was cut, what went with it, and the end of what was kept."""

    last: Record
    gone: dict[str, int]
    kept: Record | None

    def fields(self) -> dict[str, object]:
        """Return it as the log notes it."""
        end_of_kept = {} if self.kept is None else {"kept": self.kept.number,
                                                    "kept_hash": self.kept.hash}  # fmt: skip
        return {
            "through": self.last.number,
            "through_hash": self.last.hash,
            "gone": self.gone,
            **end_of_kept,
        }


def keep(folder: str, names: Sequence[str], at: float) -> Pruned | None:
    """Copy from these files what is to stay; None where they hold nothing. It may be repeated."""
    descriptor = open_private(os.path.join(folder, KEPT), os.O_RDWR | os.O_CREAT | os.O_APPEND)
    try:
        _, kept = end(descriptor)
        done = 0 if kept is None else kept_record(kept).number
        gone: Counter[str] = Counter()
        last = None
        for last in _records(folder, names):
            if last.event in GOES:
                gone[last.event] += 1
            elif last.number > done:  # else a process died between keeping and cutting
                inside = {"record": last.document()}
                kept = Record.after(kept, at, "kept", inside, limit=_LIMIT)
                write(descriptor, kept, durable=False)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    sync_folder(folder)
    return None if last is None else Pruned(last, dict(gone), kept)


def kept_record(kept: Record) -> Record:
    """Return the record that one of the kept chain holds; raise RecordError where it is none."""
    inside = kept.fields.get("record")
    if not isinstance(inside, dict):
        raise RecordError(f"not a record: kept record {kept.number} holds none")
    return Record.of(inside)


def _records(folder: str, names: Sequence[str]) -> Iterator[Record]:
    for name in names:
        with open(os.path.join(folder, name), "rb") as file:
            for line in file:
                yield Record.read(line)
