"""Stand-ins for what needs root: layers that only remember, and a tree of plain folders."""

from __future__ import annotations

import os
import shutil
import sys
from typing import TYPE_CHECKING, ClassVar

from democrai_osguard_helper.cgroups import Box, Tree
from democrai_osguard_helper.layers import Attempt, LayerFailed
from democrai_osguard_helper.peers import PeerRefused

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from democrai_osguard_helper.endpoints import Endpoint
    from democrai_osguard_helper.layers import Policy


class FakeLayer:
    """A layer that holds what it was told, unless the test breaks it."""

    refusal = frozenset({1})
    adoptions: ClassVar[list[str]] = []  # of all layers, in their order

    def __init__(self, name: str) -> None:
        self.name = name
        self.open: dict[str, tuple[Endpoint, ...]] = {}
        self.broken = False
        self.blind = 0  # looks that fail
        self.lost: set[str] = set()
        self.tried: dict[str, tuple[Attempt, ...]] = {}

    def reason(self) -> str:
        return ""

    def prepare(self, box: Box) -> None:
        self._work()
        self.open[box.name] = ()

    def adopt(self, policies: Sequence[Policy]) -> None:
        self._work()
        self.adoptions.append(self.name)
        self.lost.clear()
        self.open = {box.name: tuple(endpoints) for box, endpoints in policies}

    def apply(self, box: Box, endpoints: Iterable[Endpoint]) -> None:
        self._work()
        self.open[box.name] = tuple(endpoints)

    def intact(self, boxes: Iterable[Box]) -> frozenset[str]:
        if self.blind:
            self.blind -= 1
            raise LayerFailed(f"{self.name}: could not look")
        return frozenset({box.name for box in boxes} & self.open.keys() - self.lost)

    def attempts(self, boxes: Iterable[Box]) -> Iterator[tuple[str, tuple[Attempt, ...]]]:
        for box in boxes:
            if box.name in self.tried:
                yield box.name, self.tried.pop(box.name)

    def drop(self, boxes: Sequence[Box]) -> None:
        for box in boxes:
            self.open.pop(box.name, None)

    def collect(self, known: frozenset[str]) -> tuple[str, ...]:
        gone = tuple(name for name in self.open if name not in known)
        for name in gone:
            del self.open[name]
        return gone

    def remove(self) -> None:
        self.open.clear()

    def _work(self) -> None:
        if self.broken:
            raise LayerFailed(f"{self.name}: broken by the test")


class FakeBox(Box):
    """A box in a plain folder."""

    __slots__ = ()

    def remove(self) -> bool:
        shutil.rmtree(self.path, ignore_errors=True)
        return True


class FakeTree(Tree):
    """A tree in a plain folder, with the files that a cgroup has."""

    def box(self, name: str) -> Box:
        plain = super().box(name)
        return FakeBox(plain.name, plain.path, plain.relative)

    def new_box(self) -> Box:
        box = super().new_box()
        for name, text in (("procs", ""), ("freeze", "0"), ("kill", ""), ("events", "populated 1")):
            with open(f"{box.path}/cgroup.{name}", "w", encoding="ascii") as file:
                file.write(text)
        return box


def written(box: Box, name: str) -> str:
    """Return what was last written to a file of a box."""
    with open(f"{box.path}/cgroup.{name}", encoding="ascii") as file:
        return file.read()


def empty(box: Box) -> None:
    """Let a box look as if its last process had ended."""
    with open(f"{box.path}/cgroup.events", "w", encoding="ascii") as file:
        file.write("populated 0")


def nothing_left_behind(_old: str, _new: str) -> tuple[str, ...]:
    """Be a host on which nobody else has programs."""
    return ()


class FakePeer:
    """A process that lives until the test says otherwise."""

    def __init__(self, uid: int = 1000, pid: int = 4242) -> None:
        self.uid, self.pid, self.pidfd = uid, pid, os.devnull
        self.looks = 0
        self.change, self.changes_after = "", sys.maxsize

    def check(self) -> None:
        return

    def check_rights(self, *, for_good: bool = False) -> None:
        assert not for_good
        self.looks += 1
        if self.looks > self.changes_after:
            raise PeerRefused(self.change, "as the test says")

    def cgroup(self) -> str:
        return "/home"


class FakeProbe:
    """A probe whose attempts are refused, unless the test says what went wrong."""

    def __init__(self) -> None:
        self.wrong = ""

    def refused(self, _box: Box, _errors: frozenset[int]) -> str:
        return self.wrong
