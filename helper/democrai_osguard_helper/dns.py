"""Questions and answers of the domain name system, as bytes. Pure; only the resolver uses it."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from .endpoints import Network

A: Final = 1
AAAA: Final = 28
CNAME: Final = 5
_INTERNET: Final = 1
_SIZES: Final = {A: 4, AAAA: 16}
_HEADER: Final = struct.Struct(">6H")
_QUESTION: Final = struct.Struct(">2H")
_RECORD: Final = struct.Struct(">2HIH")
_POINTER: Final = 0xC0
_MAX_JUMPS: Final = 32
_MAX_NAME: Final = 255  # bytes, with the lengths of its labels
_MAX_RECORDS: Final = 256
ERRORS: Final = {1: "malformed question", 2: "server failure", 3: "no such name", 5: "refused"}


class BadAnswer(Exception):
    """The bytes are no answer to the question."""


@dataclass(frozen=True, slots=True)
class Response:
    """An answer: addresses with their time to live, an error, or a wish to be asked over TCP."""

    addresses: tuple[tuple[Network, int], ...]
    error: str
    truncated: bool


def question(identity: int, name: str, kind: int) -> bytes:
    """Return the question for one kind of address, recursion desired."""
    header = _HEADER.pack(identity, 0x0100, 1, 0, 0, 0)
    return header + _encoded(name) + _QUESTION.pack(kind, _INTERNET)


def parse(data: bytes, identity: int, name: str, kind: int) -> Response:
    """Read an answer; raise BadAnswer unless it is one to exactly this question."""
    try:
        return _parse(data, identity, name, kind)
    except (struct.error, IndexError) as error:
        raise BadAnswer("cut short") from error


def _parse(data: bytes, identity: int, name: str, kind: int) -> Response:
    got, flags, questions, answers, _, _ = _HEADER.unpack_from(data)
    if got != identity or not flags & 0x8000 or questions != 1:
        raise BadAnswer("not an answer to our question")
    asked, place = _name(data, _HEADER.size)
    if asked != name or _QUESTION.unpack_from(data, place) != (kind, _INTERNET):
        raise BadAnswer("an answer to another question")
    place += _QUESTION.size
    code = flags & 0xF
    error = ERRORS.get(code, f"error {code}") if code else ""
    if not error and answers > _MAX_RECORDS:
        error = f"{answers} records, of which {_MAX_RECORDS} are read"
    found = _addresses(data, place, min(answers, _MAX_RECORDS), name, kind)
    return Response(tuple(found), error, truncated=bool(flags & 0x0200))


def _addresses(
    data: bytes, place: int, count: int, name: str, kind: int
) -> list[tuple[Network, int]]:
    """Follow aliases in the order in which they stand; the lowest time to live counts for all."""
    found, lowest = list[tuple[Network, int]](), 2**31
    for _ in range(count):
        owner, place = _name(data, place)
        rtype, rclass, ttl, size = _RECORD.unpack_from(data, place)
        place += _RECORD.size
        body = data[place : place + size]
        if len(body) != size:
            raise BadAnswer("cut short")
        if owner == name and rclass == _INTERNET:
            lowest = min(lowest, ttl)
            if rtype == CNAME:
                name, _ = _name(data, place)
            elif rtype == kind and size == _SIZES[kind]:
                found.append((Network(body, 8 * size), lowest))
        place += size
    return found


def _encoded(name: str) -> bytes:
    labels = (label.encode("ascii") for label in name.split("."))
    return b"".join(bytes([len(label)]) + label for label in labels) + b"\0"


def _name(data: bytes, place: int) -> tuple[str, int]:
    labels: list[str] = []
    after, jumps, length = -1, 0, 0
    while (size := data[place]) != 0:
        if size & _POINTER == _POINTER:
            after = place + 2 if after < 0 else after
            place = (size & ~_POINTER) << 8 | data[place + 1]
            jumps += 1
            if jumps > _MAX_JUMPS:
                raise BadAnswer("pointers in a circle")
        else:
            labels.append(data[place + 1 : place + 1 + size].decode("latin-1").lower())
            place += 1 + size
            length += 1 + size
            if length > _MAX_NAME:
                raise BadAnswer("a name that is too long")
    return ".".join(labels), (place + 1 if after < 0 else after)
