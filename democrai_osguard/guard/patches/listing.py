"""Folders that are listed and searched.

Entries of `os.scandir` that are links answer about where they lead only as far as allowed. A search
takes a folder that it may not read for an empty one, so it is judged where it begins.
"""

from __future__ import annotations

import os
from itertools import chain, takewhile
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Self

from democrai_osguard.guard.outcome import as_error
from democrai_osguard.guard.patches.rows import Replacement
from democrai_osguard.guard.wrappers import plain

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_WILDCARDS = frozenset("*?[")


class LinkEntry:
    """An entry that is a symbolic link: what it leads to is asked through `os`, and judged."""

    __slots__ = ("_inode", "name", "path")

    def __init__(self, entry: os.DirEntry[Any]) -> None:
        self._inode = entry.inode()
        self.name = entry.name
        self.path = entry.path

    def __fspath__(self) -> Any:
        return self.path

    def __repr__(self) -> str:
        return f"<DirEntry {self.name!r}>"

    def inode(self) -> int:
        """Return the number of the link itself."""
        return self._inode

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        """Return what `os.stat` says, which may be a refusal."""
        return os.stat(self.path, follow_symlinks=follow_symlinks)

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        """Tell whether the link leads to a folder, as far as that may be known."""
        return follow_symlinks and _leads(os.path.isdir, self.path)

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        """Tell whether the link leads to a file, as far as that may be known."""
        return follow_symlinks and _leads(os.path.isfile, self.path)

    def is_symlink(self) -> bool:
        """Tell that this is a link."""
        return True

    def is_junction(self) -> bool:
        """Tell that this is no junction."""
        return False


def _leads(probe: Callable[[Any], bool], path: Any) -> bool:
    try:
        return probe(path)
    except PermissionError:
        return False


class Listing(chain):  # type: ignore[type-arg] # of entries
    """An iterator over a folder that has been read; as C code, since folders are walked a lot."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        """Do nothing: the folder is closed already."""

    def close(self) -> None:
        """Do nothing: the folder is closed already."""


def scandir_wrapper(door: Any) -> Callable[..., Any]:
    """Return what stands for `os.scandir`."""
    is_link = os.DirEntry.is_symlink

    def scandir(path: Any = None) -> Any:
        if path.__class__ is not str:
            path = plain(path)
        answer = door(path)
        if answer.__class__ is not tuple:
            if isinstance(answer, BaseException):
                raise as_error(answer) from None
            return answer
        entries = list(answer[0])  # which closes the folder
        if any(map(is_link, entries)):
            return Listing([LinkEntry(e) if e.is_symlink() else e for e in entries])
        return Listing(entries)

    return scandir


def _search(doors: Mapping[str, Any], *, below: bool) -> Callable[[Any], Any]:
    """`Path.glob`, or `rglob` where it looks `below` from the first folder on."""

    def make(original: Any) -> Any:
        def search(self: Any, pattern: Any, **options: Any) -> Any:
            by_name = not below and options.get("case_sensitive") is None
            answer = doors["check"]("read", plain(_start(self, pattern) if by_name else self))
            if isinstance(answer, BaseException):
                raise as_error(answer) from None
            return original(self, pattern, **options)

        return search

    return make


def _start(folder: Any, pattern: Any) -> str:
    """Return what a search looks at first: the folder, and the names before any wildcard."""
    names = takewhile(_WILDCARDS.isdisjoint, PurePath(pattern).parts)
    return os.path.join(folder, *names)


def search_patches(doors: Mapping[str, Any]) -> tuple[Replacement, ...]:
    """Return the rows of this area."""
    return (
        Replacement("pathlib:Path", "glob", _search(doors, below=False)),
        Replacement("pathlib:Path", "rglob", _search(doors, below=True)),
    )
