"""What the helper asks of a layer that holds egress, whichever way it does.

A layer is closed from the moment `prepare` returns; `apply` opens what a policy names and nothing
else, new before old, so that at no moment more is open than the old and the new together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from .cgroups import Box
    from .endpoints import Endpoint

    Policy = tuple[Box, Sequence[Endpoint]]


class LayerFailed(Exception):
    """The layer could not be brought into the wanted state, or is not there at all."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """A refused connection, as a layer saw it."""

    address: str
    port: int
    protocol: str
    count: int


class Layer(Protocol):
    """One way to hold egress on a cgroup."""

    name: str
    refusal: frozenset[int]  # the errors by which a refused TCP connect shows

    def reason(self) -> str:
        """Say why the layer does not work on this host; an empty text when it does."""

    def prepare(self, box: Box) -> None:
        """Close a new box."""

    def adopt(self, policies: Sequence[Policy]) -> None:
        """Bring these boxes, and no others, into their wanted state, whatever is there now."""

    def apply(self, box: Box, endpoints: Iterable[Endpoint]) -> None:
        """Let these endpoints become what is open."""

    def intact(self, boxes: Iterable[Box]) -> frozenset[str]:
        """Return the names of the boxes that the layer still holds."""

    def attempts(self, boxes: Iterable[Box]) -> Iterator[tuple[str, tuple[Attempt, ...]]]:
        """Yield what was refused in each box since the last time, box by box as they are asked for.

        Whoever stops asking leaves the rest for the next time.
        """

    def drop(self, boxes: Sequence[Box]) -> None:
        """Forget boxes that nobody is in, all at once; one that is not known is passed over."""

    def collect(self, known: frozenset[str]) -> tuple[str, ...]:
        """Remove what belongs to boxes that do not exist any more; return their names."""

    def remove(self) -> None:
        """Take away what the layer has besides boxes: there are none any more."""
