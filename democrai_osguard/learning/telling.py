"""Which refusals tell a person most, and which look-ups most programs do without. Pure.

Only the order of what is told depends on it: nothing is left out, and nothing is decided.
"""

from __future__ import annotations

import os
import re
from enum import IntEnum
from typing import TYPE_CHECKING

from democrai_osguard.access import Operation, ResourceType
from democrai_osguard.learning.folding import SHARED
from democrai_osguard.targets.filesystem import path_covers

if TYPE_CHECKING:
    from collections.abc import Iterable

    from democrai_osguard.learning.sightings import Lack, Sighting, Sightings

# What C libraries, shells and git look for, and go on without.
_USERS = re.compile(r"/etc/(passwd|group)")
_WELL_KNOWN = re.compile(
    r"/etc/(passwd|group|gitconfig|bash\.bashrc|profile|inputrc|machine-id|terminfo/.*|selinux/.*)"
    r"|(/root|/home/[^/]+)/\.(gitconfig|config/git/[a-z]+|bashrc|profile|inputrc|terminfo/.*)"
    r"|(/var)?/run/nscd/socket"
)
_WORD = re.compile(r"[^\s'\"`()=:;,|&<>]+")  # of a command, also inside a script for a shell


class _Rank(IntEnum):
    """The order in which refusals are told."""

    NETWORK = 0
    MEANT = 1  # asked for by the command, or nearly covered by a rule
    OTHER = 2
    DONE_WITHOUT = 3


def in_order(run: Sightings) -> tuple[list[Sighting], list[Sighting]]:
    """Return what was refused, most telling first, and apart what most programs do without."""
    words = {os.path.normpath(word) for each in run.command for word in _WORD.findall(each)}
    looking = {pid for each in run.seen if _USERS.fullmatch(_target(each)) for pid in each.pids}
    ranks = [_rank(each, words, run.access, looking) for each in run.seen]
    ranked = sorted(zip(ranks, run.seen, strict=True), key=lambda pair: pair[0])
    telling = [each for rank, each in ranked if rank is not _Rank.DONE_WITHOUT]
    return telling, [each for _, each in ranked[len(telling) :]]


def _rank(sighting: Sighting, words: set[str], access: Iterable[Lack], looking: set[int]) -> _Rank:
    lack, path = sighting.lack, _target(sighting)
    if lack is None:
        return _Rank.OTHER
    if lack.resource_type is ResourceType.NETWORK:
        return _Rank.NETWORK
    if lack.target is None:  # a socket: libraries ask a name service first, and then those files
        return _Rank.DONE_WITHOUT if looking.issuperset(sighting.pids) else _Rank.OTHER
    if any(_is_asked_for(path, word) for word in words):
        return _Rank.MEANT
    if lack.operation in {Operation.READ, Operation.MODIFY} and _WELL_KNOWN.fullmatch(path):
        return _Rank.DONE_WITHOUT
    return _Rank.MEANT if any(_is_near(path, rule) for rule in access) else _Rank.OTHER


def _target(sighting: Sighting) -> str:
    """Return what the acts were on, where that is a path."""
    target = sighting.lack.target if sighting.lack else None
    return next(iter(sighting.paths), target) or ""


def _is_asked_for(path: str, word: str) -> bool:
    """Tell whether a word of the command names the path; from where it is relative is not known."""
    if word.startswith("/"):
        return path_covers(word, path)
    return path.endswith("/" + re.sub(r"^(\.\./)+", "", word))


def _is_near(path: str, rule: Lack) -> bool:
    """Tell whether a rule is about the path but for its operation, or about what lies beside it."""
    if rule.resource_type is not ResourceType.FILESYSTEM or rule.target is None:
        return False
    folder = os.path.dirname(path)
    is_beside = os.path.dirname(rule.target) == folder and folder not in SHARED
    return is_beside or path_covers(rule.target, path)
