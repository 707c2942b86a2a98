"""The profile of a run: whether it may write at all, and which paths need a second look.

Globs are checked when the profile is made, so that a broken one never silently matches nothing.
"""

from __future__ import annotations

import os
import re
import unicodedata
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from democrai_osguard.access import AccessRequest, Operation, ResourceType
from democrai_osguard.errors import ProfileError, shown

if TYPE_CHECKING:
    from collections.abc import Iterable

_ALTERNATIVES = 1000  # as many as the braces of one glob may stand for
_BRACKET = re.compile(r"\[[!^]?(\]?[^\]/]+)\]")
_RANGE = re.compile(r"(.)-(.)")
_UNSEEN = "Cf"  # the category of joiners and direction marks
_MAGIC = re.compile(r"[*?\[\]{}\\]")

WRITES = frozenset({Operation.CREATE, Operation.MODIFY, Operation.DELETE})


@dataclass(frozen=True, slots=True)
class Globs:
    """Path patterns. One without a slash matches at any depth; a folder includes its contents."""

    patterns: tuple[str, ...] = ()
    _compiled: tuple[_Compiled, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        compiled = tuple(_compile(pattern) for pattern in self.patterns)
        object.__setattr__(self, "_compiled", compiled)

    def match(self, path: str) -> str | None:
        """Return the first pattern that matches a normal path.

        Case and the spelling of letters do not matter: on some file systems they name one file.
        """
        names = _names(path)
        found = (each for each in self._compiled if any(map(each.target.fullmatch, names)))
        return next((each.pattern for each in found), None)

    def leads_to(self, path: str) -> str | None:
        """Return the first pattern that a folder is on the way to: `/w/.git` for `.git/hooks`."""
        names = _names(path)
        for each in self._compiled:
            if each.ways is not None and any(map(each.ways.fullmatch, names)):
                return each.pattern
        return None

    @property
    def places(self) -> tuple[str, ...]:
        """The single paths that patterns name."""
        return tuple(place for each in self._compiled for place in each.places)

    @property
    def anywhere(self) -> tuple[str, ...]:
        """The patterns that name more than single paths."""
        return tuple(each.pattern for each in self._compiled if each.ranges)


@dataclass(frozen=True, slots=True)
class _Compiled:
    """One pattern: what it matches, the folders on the way there, and the paths that it names."""

    pattern: str
    target: re.Pattern[str]
    ways: re.Pattern[str] | None
    places: tuple[str, ...]
    ranges: bool


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
        return self.read_only and _writes(request) and request.target != os.devnull

    def soft_denial(self, request: AccessRequest) -> str | None:
        """Return the glob that sends this request to a person."""
        if request.resource_type is not ResourceType.FILESYSTEM:
            return None
        if request.operation is Operation.READ:
            return self.deny_read.match(request.target)
        if not _writes(request):
            return None
        found = self.deny_write.match(request.target)
        if found is None and request.operation is not Operation.MODIFY:
            # Who moves the folder away, or another into its place, need not touch what is in it.
            found = self.deny_write.leads_to(request.target)
        return found


def _writes(request: AccessRequest) -> bool:
    return request.resource_type is ResourceType.FILESYSTEM and request.operation in WRITES


def _compile(pattern: str) -> _Compiled:
    _check(pattern)
    try:
        found = _expanded(_anchored(pattern))
    except ProfileError:
        raise
    except Exception as error:  # the libraries' own types for this are private
        raise ProfileError(f"{shown(pattern)}: {error}") from error
    plain = tuple(each for each in found if not _MAGIC.search(each))
    ways = [way for each in found for way in _ways(each)]
    return _Compiled(
        pattern,
        _expression([place for each in found for place in (each, f"{each}/**")]),
        _expression(ways) if ways else None,
        plain,
        len(plain) < len(found),
    )


def _expanded(anchored: str) -> list[str]:
    from bracex import expand  # noqa: PLC0415 - as below

    return [_spelled(each) for each in expand(anchored, keep_escapes=True, limit=_ALTERNATIVES)]


def _expression(globs: list[str]) -> re.Pattern[str]:
    from wcmatch import glob  # noqa: PLC0415 - only profiles with globs pay for its import

    flags = glob.GLOBSTAR | glob.DOTGLOB | glob.IGNORECASE | glob.FORCEUNIX
    included, _ = glob.translate(globs, flags=flags, limit=2 * _ALTERNATIVES)
    return re.compile("|".join(f"(?:{expression})" for expression in included))


def _ways(anchored: str) -> list[str]:
    """Return the folders on the way to what a glob names, as far as they have names."""
    parts = anchored.split("/")[1:]
    fronts = [parts[:end] for end in range(1, len(parts))]
    return ["/" + "/".join(front) for front in fronts if not set(front[-1]) <= {"*"}]


def _spelled(text: str) -> str:
    """Return text with each letter spelt in one way, and without those that nobody sees."""
    if text.isascii():
        return text
    seen = (char for char in text if unicodedata.category(char) != _UNSEEN)
    return unicodedata.normalize("NFC", "".join(seen))


def _names(path: str) -> tuple[str, ...]:
    """Return a path as it is, and as file systems read it that fold the case of letters."""
    return (path,) if path.isascii() else (path, _spelled(path).casefold())


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
