"""A trie over names in a row: folders of a path, segments of a URL, labels of a host.

Looking up costs as many steps as the key has parts, however many keys are stored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Value = TypeVar("Value")


class Node(Generic[Value]):
    """One place in the trie: what is stored here, and what is below."""

    __slots__ = ("below", "value")

    def __init__(self) -> None:
        self.value: Value | None = None
        self.below: dict[str, Node[Value]] = {}


class Trie(Generic[Value]):
    """Values stored at keys, found again from each key that has one of those in front."""

    __slots__ = ("root",)

    def __init__(self) -> None:
        self.root: Node[Value] = Node()

    def at(self, key: Sequence[str]) -> Node[Value]:
        """Return the node of a key, made if it is new."""
        node = self.root
        for part in key:
            node = node.below.setdefault(part, Node())
        return node

    def first(self, key: Sequence[str]) -> Value | None:
        """Return the value nearest to the root on the way to the key."""
        node = self.root
        if node.value is not None:
            return node.value
        for part in key:
            below = node.below.get(part)
            if below is None:
                return None
            if below.value is not None:
                return below.value
            node = below
        return None

    def along(self, key: Sequence[str]) -> Iterator[Value]:
        """Yield each value on the way to the key, from the root down."""
        node: Node[Value] | None = self.root
        for part in (*key, None):
            if node is None:
                return
            if node.value is not None:
                yield node.value
            node = node.below.get(part) if part is not None else None
