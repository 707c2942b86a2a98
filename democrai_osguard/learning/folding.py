"""Folds what a run needed into the smallest manifest that would have let it run. Pure.

A rule stands at the path itself, but for three cases in which that would not help or not be honest:
what the run made itself did not exist when it started, so that a rule must stand at the folder that
did; moves need the rights of folders, and gain what is moved none; and many files of one folder are
that folder.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from democrai_osguard.access import Operation, ResourceType, Rule
from democrai_osguard.permissions.profiles import DENY_READ
from democrai_osguard.policy.profile import Globs
from democrai_osguard.targets.filesystem import is_broad, path_covers

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from democrai_osguard.learning.sightings import Move, Sighting, Sightings

# So many files of one folder are the folder.
MANY = 4
_EXAMPLES = 3
TEMPORARY = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108 - nothing is written there
# Folders that belong to nobody: they are never what a program "reads all of".
SHARED = frozenset(
    (
        *TEMPORARY, "/bin", "/boot", "/dev", "/etc", "/lib", "/media", "/mnt", "/opt", "/proc",
        "/run", "/sbin", "/srv", "/sys", "/usr", "/usr/bin", "/usr/lib", "/usr/local",
        "/usr/local/bin", "/usr/sbin", "/usr/share", "/var", "/var/lib", "/var/run",
    )
)  # fmt: skip
_ANOTHER_PROCESS = re.compile(r"/proc/\d+(/|$)")
_SECRETS = Globs(DENY_READ)
_STAYS = frozenset({Operation.CREATE, Operation.DELETE})  # a rule may name what does not exist yet
_OF_FILES = (Operation.READ, Operation.MODIFY, Operation.EXECUTE)
_OF_FOLDERS = (*_OF_FILES, Operation.CREATE, Operation.DELETE)


@dataclass(slots=True)
class Entry:
    """One rule, and what it is for."""

    rule: Rule
    count: int = 0
    paths: Counter[str] = field(default_factory=Counter)
    programs: Counter[str] = field(default_factory=Counter)
    covered_by: Rule | None = None  # a broad root: whoever strikes that out needs this one

    @property
    def examples(self) -> tuple[str, ...]:
        """Return a few of the paths or peers that it was needed for."""
        return tuple(path for path, _ in self.paths.most_common(_EXAMPLES))

    @property
    def marks(self) -> tuple[str, ...]:
        """Say what a person should look at twice."""
        if self.rule.resource_type is not ResourceType.FILESYSTEM:
            return ()
        secret = next(filter(None, map(_SECRETS.match, (self.rule.target, *self.paths))), None)
        broad = is_broad(self.rule.target) or self.rule.target in SHARED
        return (*(["secret"] if secret else []), *(["broad"] if broad else []))


@dataclass(frozen=True, slots=True)
class Learnt:
    """The rules of a run, and what no rule was made for."""

    entries: tuple[Entry, ...]
    left_out: tuple[str, ...]

    @property
    def rules(self) -> tuple[Rule, ...]:
        """Return the rules alone, without those that another covers."""
        return tuple(entry.rule for entry in self.entries if entry.covered_by is None)


def fold(run: Sightings, names: Mapping[str, str]) -> Learnt:
    """Return the rules that the run needed; `names` says which address was looked up as what."""
    made = _made(run)
    crowded = Counter(map(os.path.dirname, made))
    # Names that only passed: the next run has others, so that they count as more than one.
    crowded.update(map(os.path.dirname, _passing(run)))
    entries: dict[Rule, Entry] = {}
    left_out: dict[str, None] = {}
    for sighting in run.seen:
        reason = _unfit(sighting)
        if reason:
            left_out[reason] = None
            continue
        for path, count in sighting.paths.items():
            for rule in _rules(sighting, path, made, crowded, names):
                entry = entries.setdefault(rule, Entry(rule))
                entry.count += count
                entry.paths[path] += count
                entry.programs += sighting.programs
    found = _gathered(entries.values())
    while more := list(_gained(found, run.moves, made)):
        found = _gathered([*found, *more])
    kept = _without_doubles(found)
    return Learnt(tuple(sorted(kept, key=_order)), tuple(left_out))


def _made(run: Sightings) -> frozenset[str]:
    """Return the paths that the run made."""
    return frozenset(
        path
        for sighting in run.seen
        if sighting.lack and sighting.lack.operation is Operation.CREATE
        for path in sighting.paths
    )


def _passing(run: Sightings) -> frozenset[str]:
    """Return the paths that the run made and then removed: names of temporary files are random."""
    made: set[str] = set()
    removed: set[str] = set()
    for sighting in run.seen:
        operation = sighting.lack.operation if sighting.lack else None
        if operation is Operation.CREATE:
            made.update(sighting.paths)
        elif operation is Operation.DELETE:
            removed.update(made.intersection(sighting.paths))
    return frozenset(removed)


def _unfit(sighting: Sighting) -> str | None:
    lack = sighting.lack
    if lack is None:
        return f"{sighting.call}: {sighting.why or 'no rule allows this call'}"
    if lack.target is None:
        return f"{sighting.call}: a socket without a peer"
    if lack.resource_type is ResourceType.FILESYSTEM and _ANOTHER_PROCESS.match(lack.target):
        return f"{lack.operation} of folders of processes in /proc, which have other numbers"
    return None


def _rules(
    sighting: Sighting,
    path: str,
    made: frozenset[str],
    crowded: Counter[str],
    names: Mapping[str, str],
) -> Iterator[Rule]:
    lack = sighting.lack
    assert lack is not None  # noqa: S101 - for the type checker: _unfit saw to that
    assert lack.target is not None  # noqa: S101 - likewise
    if lack.resource_type is not ResourceType.FILESYSTEM:
        named = _named(lack.target, names)
        yield Rule(lack.resource_type, lack.operation, named)
        if sighting.inside and named != lack.target:  # a name opens no address inside by itself
            address = lack.target.rpartition("://")[2]
            yield Rule(lack.resource_type, Operation.CONNECT, address)
        return
    # A single name is the broker's to hold; of a move only the folders count, which must be there.
    by_name = lack.operation in _STAYS and lack.target == path
    lone = by_name and crowded[os.path.dirname(path)] <= 1
    yield Rule(lack.resource_type, lack.operation, _standing(lack.target, made, lone=lone))


def _standing(path: str, made: frozenset[str], *, lone: bool) -> str:
    """Return where a rule for the path can stand when the next run starts."""
    topmost = next((each for each in reversed(_ancestors(path)) if each in made), None)
    if topmost is None or (lone and topmost == path):
        return path
    return os.path.dirname(topmost)


def _ancestors(path: str) -> list[str]:
    """Return the path and the folders that it is in, up to the root."""
    ancestors = [path]
    while ancestors[-1] != "/":
        ancestors.append(os.path.dirname(ancestors[-1]))
    return ancestors


def _gained(entries: list[Entry], moves: Iterable[Move], made: frozenset[str]) -> Iterator[Entry]:
    """Yield what lacks for the moves: the kernel refuses one that gains the object a right."""
    rules = {
        (entry.rule.operation, entry.rule.target)
        for entry in entries
        if entry.rule.resource_type is ResourceType.FILESYSTEM and entry.rule.target not in made
    }
    for move in moves:
        if _ANOTHER_PROCESS.match(move.old):  # a file that was open, by its number: nothing to name
            continue
        for operation in _OF_FOLDERS if move.is_folder else _OF_FILES:
            there = any((operation, each) in rules for each in _ancestors(move.new)[1:])
            if there and not any((operation, each) in rules for each in _ancestors(move.old)):
                target = _standing(move.old, made, lone=False)
                rules.add((operation, target))
                rule = Rule(ResourceType.FILESYSTEM, operation, target)
                yield Entry(rule, 1, Counter({move.old: 1}))


def _named(target: str, names: Mapping[str, str]) -> str:
    """Return the target with the name that its address was looked up as."""
    scheme, mark, rest = target.rpartition("://")
    host, _, port = rest.rpartition(":")
    name = names.get(host.strip("[]"))
    return f"{scheme}{mark}{name}:{port}" if name else target


def _gathered(entries: Iterable[Entry]) -> list[Entry]:
    """Put many rules for one folder together, where that folder belongs to somebody."""
    found = list(entries)
    crowds = Counter(
        (entry.rule.operation, os.path.dirname(entry.rule.target))
        for entry in found
        if entry.rule.resource_type is ResourceType.FILESYSTEM
    )
    folders = {key for key, count in crowds.items() if count >= MANY and _is_own(key[1])}
    gathered: dict[Rule, Entry] = {}
    for entry in found:
        folder = os.path.dirname(entry.rule.target)
        rule = entry.rule
        if (rule.operation, folder) in folders and not _SECRETS.match(rule.target):
            rule = Rule(rule.resource_type, rule.operation, folder)
        whole = gathered.setdefault(rule, Entry(rule))
        whole.count += entry.count
        whole.paths += entry.paths
        whole.programs += entry.programs
    return list(gathered.values())


def _is_own(folder: str) -> bool:
    """Tell whether a folder is one program's: not shared, no home, nor all settings of a home."""
    above = os.path.dirname(folder)
    hidden = os.path.basename(folder).startswith(".") and is_broad(above)
    return not is_broad(folder) and folder not in SHARED and not hidden


def _without_doubles(entries: list[Entry]) -> Iterator[Entry]:
    """Leave out what a wider rule covers; a rule for HTTP opens its connection.

    What only a broad root covers is still told of, beside the manifest.
    """
    for entry in entries:
        wider = [other for other in entries if other is not entry and _covers(other, entry)]
        narrow = [other for other in wider if "broad" not in other.marks]
        if narrow:
            narrow[0].count += entry.count
            narrow[0].paths += entry.paths
        else:
            entry.covered_by = wider[0].rule if wider else None
            yield entry


def _covers(wide: Entry, narrow: Entry) -> bool:
    if wide.rule.resource_type is not narrow.rule.resource_type:
        return False
    if wide.rule.resource_type is ResourceType.FILESYSTEM:
        same = wide.rule.operation is narrow.rule.operation
        return same and path_covers(wide.rule.target, narrow.rule.target)
    plain = narrow.rule.operation is Operation.CONNECT and "://" not in narrow.rule.target
    return plain and wide.rule.target.rpartition("://")[2] == narrow.rule.target


def _order(entry: Entry) -> tuple[str, str, str]:
    return entry.rule.resource_type, entry.rule.target, entry.rule.operation
