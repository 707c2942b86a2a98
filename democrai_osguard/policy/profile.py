"""The profile of a run: whether it may write at all, and which paths need a second look.

Globs are checked when the profile is made, so that a broken one never silently matches nothing.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from democrai_osguard.access import AccessRequest, Operation, ResourceType
from democrai_osguard.errors import ProfileError, shown

if TYPE_CHECKING:
    from collections.abc import Iterable

_ALTERNATIVES = 1000  # as many as the braces of one glob may stand for
_BRACKET = re.compile(r"\[[!^]?(\]?[^\]/]+)\]")
_RANGE = re.compile(r"(.)-(.)")
_MAGIC = re.compile(r"[*?\[\]{}\\]")

WRITES = frozenset({Operation.CREATE, Operation.MODIFY, Operation.DELETE})


@dataclass(frozen=True, slots=True)
class Globs:
    """Path patterns. One without a slash matches at any depth; a folder includes its contents."""

    patterns: tuple[str, ...] = ()
    _compiled: tuple[tuple[str, re.Pattern[str]], ...] = field(
        init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        compiled = tuple((pattern, _compile(pattern)) for pattern in self.patterns)
        object.__setattr__(self, "_compiled", compiled)

    def match(self, path: str) -> str | None:
        """Return the first pattern that matches a normal path."""
        for pattern, expression in self._compiled:
            if expression.fullmatch(path):
                return pattern
        return None


@dataclass(frozen=True, slots=True)
class Profile:
    """What a run is held to beside its rules."""

    read_only: bool = False
    deny_read: Globs = field(default_factory=Globs)
    deny_write: Globs = field(default_factory=Globs)
    speaks: bool = field(init=False, repr=False, compare=False)  # whether it has anything to say

    def __post_init__(self) -> None:
        globs = self.deny_read.patterns or self.deny_write.patterns
        object.__setattr__(self, "speaks", self.read_only or bool(globs))

    @classmethod
    def of(
        cls,
        *,
        read_only: bool = False,
        deny_read: Iterable[str] = (),
        deny_write: Iterable[str] = (),
    ) -> Profile:
        """Return a profile; raise ProfileError where a glob is invalid."""
        return cls(read_only, Globs(tuple(deny_read)), Globs(tuple(deny_write)))

    def forbids(self, request: AccessRequest) -> bool:
        """Tell whether the request is a write that this profile never allows."""
        return self.read_only and _writes(request)

    def soft_denial(self, request: AccessRequest) -> str | None:
        """Return the glob that sends this request to a person."""
        if request.resource_type is not ResourceType.FILESYSTEM:
            return None
        if request.operation is Operation.READ:
            return self.deny_read.match(request.target)
        return self.deny_write.match(request.target) if _writes(request) else None


def _writes(request: AccessRequest) -> bool:
    return request.resource_type is ResourceType.FILESYSTEM and request.operation in WRITES


def _compile(pattern: str) -> re.Pattern[str]:
    _check(pattern)
    from wcmatch import glob  # noqa: PLC0415 - only profiles with globs pay for its import

    anchored = _anchored(pattern)
    flags = glob.GLOBSTAR | glob.DOTGLOB | glob.BRACE | glob.CASE | glob.FORCEUNIX
    try:
        included, _ = glob.translate([anchored, f"{anchored}/**"], flags=flags, limit=_ALTERNATIVES)
    except Exception as error:  # the library's own type for this is private
        raise ProfileError(f"{shown(pattern)}: {error}") from error
    return re.compile("|".join(f"(?:{expression})" for expression in included))


def _anchored(pattern: str) -> str:
    """Return a glob for normal paths: anywhere if it is relative, its plain front resolved."""
    path = os.path.expanduser(pattern).rstrip("/")
    if path.startswith("~"):
        raise ProfileError(f"{shown(pattern)}: no such user's home")
    if not path.startswith("/"):
        return f"/**/{path}"
    parts = path.split("/")[1:]
    plain = next((place for place, part in enumerate(parts) if _MAGIC.search(part)), len(parts))
    front = os.path.realpath("/" + "/".join(parts[:plain]))
    return "/".join([front.rstrip("/"), *parts[plain:]])


def _check(pattern: object) -> None:
    if not isinstance(pattern, str) or not pattern.strip():
        raise ProfileError(f"{shown(pattern)}: a glob is text that is not empty")
    if "\0" in pattern:
        raise ProfileError(f"{shown(pattern)}: a glob has no NUL byte")
    if {".", ".."}.intersection(pattern.split("/")):
        raise ProfileError(f"{shown(pattern)}: normal paths have no '.' or '..', so nor has a glob")
    if "//" in pattern:
        raise ProfileError(f"{shown(pattern)}: an empty name between slashes matches nothing")
    ranges = (pair for inside in _BRACKET.findall(pattern) for pair in _RANGE.findall(inside))
    if any(low > high for low, high in ranges):
        raise ProfileError(f"{shown(pattern)}: a range that runs backwards matches nothing")
    if not _balanced(pattern):
        raise ProfileError(
            f"{shown(pattern)}: a bracket, brace or backslash without its other half"
        )


def _balanced(pattern: str) -> bool:
    bare = re.sub(r"\\.", "", pattern, flags=re.DOTALL)
    bare = _BRACKET.sub("", bare)
    depth = 0
    for char in bare:
        depth += {"{": 1, "}": -1}.get(char, 0)
        if depth < 0:
            return False
    return depth == 0 and not {"[", "]", "\\"}.intersection(bare)
