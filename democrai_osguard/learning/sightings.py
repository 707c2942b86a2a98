"""Reads what a traced or observed run left behind: typed values, or an error that says where.

The file is data like any other: a line that is not understood is an error, not a guess.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from democrai_osguard.access import Operation, ResourceType, operation_of
from democrai_osguard.errors import OsGuardError, shown

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Sequence

REFUSED, NEEDED = "refused", "needed"
_MODES = (REFUSED, NEEDED)
_FORMAT = 1


class TraceError(OsGuardError, ValueError):
    """A file that is no trace, or a line of it that is not understood."""

    code = "invalid_trace"


@dataclass(frozen=True, slots=True)
class Lack:
    """A rule that an act lacked. Without a target, whom it wanted to reach is not known."""

    resource_type: ResourceType
    operation: Operation
    target: str | None


@dataclass(slots=True)
class Sighting:
    """All acts that lacked the same rule."""

    lack: Lack | None  # None: no rule allows such a call
    call: str
    count: int = 0
    programs: Counter[str] = field(default_factory=Counter)
    pids: list[int] = field(default_factory=list)
    paths: Counter[str] = field(default_factory=Counter)  # or peers: what the acts were on
    why: str = ""  # why no rule helps, where that is known
    name: str = ""  # what a peer was looked up as
    inside: bool = False  # whether a peer's address is one that no name opens


@dataclass(frozen=True, slots=True)
class Move:
    """Something came to another folder: moved, or linked there as well."""

    old: str
    new: str
    is_folder: bool


@dataclass(frozen=True, slots=True)
class Sightings:
    """A run: how it was looked at, what was seen in the order of its first sight."""

    mode: str
    command: tuple[str, ...]
    seen: tuple[Sighting, ...]
    lookups: tuple[str, ...]
    complete: bool
    moves: tuple[Move, ...] = ()
    access: tuple[Lack, ...] = ()  # the rules that it had


def read_sightings(path: str | os.PathLike[str]) -> Sightings:
    """Read a trace; raise TraceError, which names the file, where it is none."""
    with open(path, encoding="utf-8", errors="surrogateescape") as file:
        texts = list(file)
    try:
        return _parsed(texts)
    except TraceError as error:
        reason = f"not a trace of democrai-launch: {error}"
        raise TraceError(f"{shown(str(path))}: {reason}") from error


def _parsed(texts: Sequence[str]) -> Sightings:
    lines = [_object(text, place) for place, text in enumerate(texts, 1)]
    if not lines or lines[0].get("format") != _FORMAT or lines[0].get("mode") not in _MODES:
        raise TraceError("it does not begin as one")
    run = sightings(str(lines[0]["mode"]), _words(lines[0].get("command")), lines[1:])
    return replace(run, access=tuple(_access(lines[0].get("access", []))))


def sightings(
    mode: str, command: tuple[str, ...], lines: Sequence[Mapping[str, object]]
) -> Sightings:
    """Put the lines of a run together; raise TraceError where one is not understood."""
    seen: dict[tuple[Lack | None, str], Sighting] = {}
    lookups: dict[str, None] = {}
    moves: dict[Move, None] = {}
    for place, line in enumerate(lines, 2):
        if "lookup" in line:
            lookups[str(line["lookup"])] = None
        elif "moved" in line:
            moves[_move(line, place)] = None
        elif "more" not in line:
            _add(seen, line, place)
    complete = not any("more" in line for line in lines)
    return Sightings(mode, command, tuple(seen.values()), tuple(lookups), complete, tuple(moves))


def _add(
    seen: dict[tuple[Lack | None, str], Sighting], line: Mapping[str, object], place: int
) -> None:
    try:
        lack, call = _lack(line["missing"]), str(line["call"])
        pid, program, path = int(str(line["pid"])), str(line["program"]), line["path"]
    except (KeyError, TypeError, ValueError) as error:
        raise TraceError(f"line {place}: {error}") from error
    # What lacks a rule is told by the rule; what no rule allows, by the call.
    why = str(line.get("why", ""))
    sighting = seen.setdefault((lack, "" if lack else f"{call} {why}"), Sighting(lack, call))
    sighting.why = why
    sighting.name = str(line.get("name", sighting.name))
    sighting.inside = line.get("inside") is True
    sighting.count += 1
    sighting.programs[program] += 1
    if path is not None:
        sighting.paths[str(path)] += 1
    if pid not in sighting.pids:
        sighting.pids.append(pid)


def _move(line: Mapping[str, object], place: int) -> Move:
    old, new, is_folder = (line.get(name) for name in ("moved", "to", "folder"))
    if not (isinstance(old, str) and isinstance(new, str) and isinstance(is_folder, bool)):
        raise TraceError(f"line {place}: not a move")
    return Move(old, new, is_folder)


def _lack(value: object) -> Lack | None:
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise TypeError("missing: expected an object")
    target = value["target"]
    if target is not None and (not isinstance(target, str) or not target):
        raise TypeError("missing.target: expected a text")
    return Lack(*operation_of(str(value["resource_type"]), str(value["operation"])), target)


def _access(rules: object) -> Iterator[Lack]:
    """Yield the rules that the run had: what it would have lacked without them."""
    if not isinstance(rules, list):
        raise TraceError("line 1: access: expected a list")
    for place, rule in enumerate(rules):
        try:
            had = _lack(rule)
        except (KeyError, TypeError, ValueError) as error:
            raise TraceError(f"line 1: access[{place}]: {error}") from error
        if had is not None:
            yield had


def _object(text: str, place: int) -> Mapping[str, object]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise TraceError(f"line {place}: not JSON: {error}") from error
    if not isinstance(value, dict):
        raise TraceError(f"line {place}: expected an object")
    return value


def _words(value: object) -> tuple[str, ...]:
    return tuple(str(word) for word in value) if isinstance(value, list) else ()
