"""The shapes of the tables: what a call touches, and where a name is replaced."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True)
class Touches:
    """One effect of a call: an operation on the path in one of its arguments.

    `write` means modify where the path exists and create where it does not. `how` is `object`
    for what the path leads to, `name` for the name itself, `plain` where a held name will not do.
    """

    operation: str
    position: int
    keyword: str
    how: str = "object"

    @property
    def plain(self) -> tuple[str, int, str, str]:
        """The same as values that may cross a door."""
        return self.operation, self.position, self.keyword, self.how


@dataclass(frozen=True, slots=True)
class Call:
    """A C function that is replaced, under every name that it has anywhere."""

    module: str
    name: str
    touches: tuple[Touches, ...]


@dataclass(frozen=True, slots=True)
class Replacement:
    """An attribute of a module or class that is replaced by what `make` returns for it."""

    owner: str  # "package.module" or "package.module:Class"
    name: str
    make: Callable[[Any], Any]
    everywhere: bool = False  # also where other modules captured the original
