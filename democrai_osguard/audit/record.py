"""One record of the audit log: a line of JSON that names the hash of the line before it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from democrai_osguard.errors import OsGuardError

if TYPE_CHECKING:
    from collections.abc import Mapping

START = "0" * 64  # what the first record names as the one before it
RECORD_LIMIT = 256 * 1024  # bytes of one line
_RESERVED = frozenset({"number", "at", "event", "previous", "hash"})


class RecordError(OsGuardError, ValueError):
    """A line that is no record, or a record that cannot be written."""

    code = "audit_record_invalid"


@dataclass(frozen=True, slots=True)
class Record:
    """What happened, when, and its place in the chain."""

    number: int
    at: float
    event: str
    fields: Mapping[str, object]
    previous: str
    hash: str

    @classmethod
    def after(
        cls,
        last: Record | None,
        at: float,
        event: str,
        fields: Mapping[str, object],
        limit: int = RECORD_LIMIT,
    ) -> Record:
        """Return the record that follows another; raise RecordError where it cannot be one."""
        if not _RESERVED.isdisjoint(fields):
            raise RecordError(f"a record has its own {', '.join(sorted(_RESERVED))}")
        number, previous = (1, START) if last is None else (last.number + 1, last.hash)
        body = _body(number, at, event, fields, previous)
        record = cls(number, at, event, dict(fields), previous, _hash(body))
        if len(record.line()) > limit:
            raise RecordError(f"a record has at most {limit} bytes")
        return record

    @classmethod
    def read(cls, line: bytes) -> Record:
        """Return the record in a line; raise RecordError where it is none or was changed."""
        try:
            body = json.loads(line)
            claimed = body.pop("hash")
            names = [body[name] for name in ("number", "at", "event", "previous")]
            fields = {name: value for name, value in body.items() if name not in _RESERVED}
            number, at, event, previous = int(names[0]), float(names[1]), *map(str, names[2:])
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise RecordError(f"not a record: {type(error).__name__}") from error
        if claimed != _hash(body) or line != _text(body | {"hash": claimed}):
            raise RecordError(f"record {number} was changed after it was written")
        return cls(number, at, event, fields, previous, claimed)

    @classmethod
    def of(cls, document: Mapping[str, object]) -> Record:
        """Return the record that a document is; raise RecordError as `read` does."""
        return cls.read(_text(document))

    def document(self) -> dict[str, object]:
        """Return the record with its place in the chain."""
        body = _body(self.number, self.at, self.event, self.fields, self.previous)
        return body | {"hash": self.hash}

    def line(self) -> bytes:
        """Return the record as it stands in the file."""
        return _text(self.document())


def _body(
    number: int, at: float, event: str, fields: Mapping[str, object], previous: str
) -> dict[str, object]:
    return {"number": number, "at": at, "event": event, **fields, "previous": previous}


def _text(body: Mapping[str, object]) -> bytes:
    return json.dumps(body, sort_keys=True, separators=(",", ":")).encode("ascii") + b"\n"


def _hash(body: Mapping[str, object]) -> str:
    return hashlib.sha256(_text(body)).hexdigest()
