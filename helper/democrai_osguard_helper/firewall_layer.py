"""Egress held by iptables, ip6tables and ipset on the cgroup of each box.

The plan is pure and elsewhere; here it is run. Rules go before the cgroup does: the legacy backend
refuses every later change of the table while a rule names a cgroup that is gone.
"""

from __future__ import annotations

import contextlib
import errno
import re
from typing import TYPE_CHECKING, Final, Protocol

from . import commands, set_members
from . import firewall_plan as plan
from .commands import RESTORE, SAVE, SET_CONTENTS, SET_NAMES, SET_SIZES, SETS, Commands
from .layers import Attempt, LayerFailed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from .cgroups import Box
    from .endpoints import Endpoint
    from .layers import Policy

_DENIED: Final = re.compile(r"add \S+ (\S+),(tcp|udp):(\d+)")
LOOKS: Final = 5
_EMPTY: Final[plan.Entries] = plan.entries(())
_SIZES: Final = re.compile(r"^Name: (\S+)$.*?^Number of entries: (\d+)$", re.MULTILINE | re.DOTALL)


class Runner(Protocol):
    """What runs the programs."""

    def run(self, *jobs: tuple[tuple[str, ...], str]) -> list[str]:
        """Run all jobs at once; return their outputs."""


class FirewallLayer:
    """The layer of iptables and ipset."""

    name = "firewall"
    refusal = frozenset({errno.ECONNREFUSED})

    def __init__(
        self,
        names: plan.Names,
        *,
        passes: Iterable[Endpoint] = (),
        report: bool = False,
        runner: Runner | None = None,
    ) -> None:
        self._names = names
        self._passes = tuple(passes)  # what another layer judges better
        self._report = report
        self._runner = runner or Commands()
        self._known: dict[str, plan.Entries | None] = {}

    def reason(self) -> str:
        """Write our chain and the jump, unless they stand: what this host cannot do shows here."""
        lacking = self.lacking()
        if lacking:
            return lacking
        try:
            if not self._is_entered(self._saved()):
                self.rebuild(())
            self._runner.run((SET_NAMES, ""))
        except LayerFailed as error:
            return f"firewall: {error}"
        return ""

    @staticmethod
    def lacking() -> str:
        """Name a program that this host lacks; an empty text where all are installed."""
        try:
            for words in (*RESTORE.values(), *SAVE.values(), SETS):
                commands.find(words[0])
        except LayerFailed as error:
            return f"firewall: {error}"
        return ""

    def prepare(self, box: Box) -> None:
        """Make empty sets and the chains that mention them."""
        names, report = self._names, self._report
        self._runner.run((SETS, plan.create_text(names, box, report=report)))
        texts = {v: plan.prepare_text(names, box, v, report=report) for v in plan.VERSIONS}
        self._runner.run(*((RESTORE[version], text) for version, text in texts.items()))
        self._known[box.name] = _EMPTY

    def adopt(self, policies: Sequence[Policy]) -> None:
        """Fill all sets in one go, then write the chains anew unless they are as they should be."""
        boxes = [box for box, _ in policies]
        wanted = {box.name: plan.entries((*rules, *self._passes)) for box, rules in policies}
        (text,) = self._runner.run((SET_CONTENTS, ""))
        contents = plan.Contents(text)
        self._known |= dict.fromkeys(wanted)  # until it is done nobody knows what the sets hold
        changes = plan.adopt_text(self._names, boxes, wanted, contents, report=self._report)
        if changes:
            self._runner.run((SETS, changes))
        self._known |= wanted
        saved = self._saved()
        if not self._is_complete(boxes, saved):
            self._rebuild(boxes, saved)
        notes = [self._names.set(box.name, f"d{v}") for box in boxes for v in plan.VERSIONS]
        if not self._report:  # nothing notes refusals there any more
            with contextlib.suppress(LayerFailed):  # the next adoption tries again
                self._destroy([name for name in notes if contents.has(name)])

    def apply(self, box: Box, endpoints: Iterable[Endpoint]) -> None:
        """Fill the sets, new before old."""
        wanted = plan.entries((*endpoints, *self._passes))
        old = self._known.get(box.name)
        self._known[box.name] = None  # until it is done nobody knows what the sets hold
        text = plan.change_text(self._names, box, old, wanted)
        if text:
            self._runner.run((SETS, text))
        self._known[box.name] = wanted

    def intact(self, boxes: Iterable[Box]) -> frozenset[str]:
        """Compare what iptables-save prints with the plan, and what the sets hold."""
        saved = self._saved()
        if not self._is_entered(saved):
            return frozenset()
        held = set_members.read(lambda name: self._names.box_of(name) is not None)
        return frozenset(
            box.name for box in boxes if self._holds(box, saved) and self._filled(box, held)
        )

    def rebuild(self, boxes: Iterable[Box]) -> None:
        """Write all chains anew in one transaction per family."""
        self._rebuild(tuple(boxes), self._saved())

    def _rebuild(self, boxes: Sequence[Box], saved: Mapping[int, plan.Saved]) -> None:
        names, report = self._names, self._report
        self._runner.run(
            *(
                (RESTORE[v], plan.whole_text(names, boxes, v, saved[v], report=report))
                for v in plan.VERSIONS
            )
        )

    def attempts(self, boxes: Iterable[Box]) -> Iterator[tuple[str, tuple[Attempt, ...]]]:
        """Read and empty the sets in which refused packets were noted."""
        if not self._report:
            return
        sizes = self._sizes()
        for box in boxes:
            kinds = [self._names.set(box.name, f"d{v}") for v in plan.VERSIONS]
            lines = [self._take(kind) for kind in kinds if sizes.get(kind, "0") != "0"]
            found = tuple(
                Attempt(address, int(port), word, 1)
                for text in lines
                for address, word, port in _DENIED.findall(text)
            )
            if found:
                yield box.name, found

    def drop(self, boxes: Sequence[Box]) -> None:
        """Remove the chains, then the sets that they mentioned."""
        boxes = [box for box in boxes if box.name in self._known]
        if not boxes:
            return
        text = plan.drop_text(self._names, boxes)
        self._runner.run(*((RESTORE[version], text) for version in plan.VERSIONS))
        kinds = [f"{k}{v}" for k in ("tupd" if self._report else "tup") for v in plan.VERSIONS]
        sets = [self._names.set(box.name, kind) for box in boxes for kind in kinds]
        self._destroy(sets)
        for box in boxes:
            del self._known[box.name]

    def collect(self, known: frozenset[str]) -> tuple[str, ...]:
        """Remove chains and sets of boxes that do not exist; `rebuild` has unlinked them."""
        saved = self._saved()
        chains = {
            v: [chain for chain in saved[v].chains() if self._orphaned(chain, known)]
            for v in plan.VERSIONS
        }
        jobs = [(RESTORE[v], plan.collect_text(names)) for v, names in chains.items() if names]
        self._runner.run(*jobs)
        (listed,) = self._runner.run((SET_NAMES, ""))
        sets = [name for name in listed.split() if self._orphaned(name, known)]
        self._destroy(sets)
        gone = {self._names.box_of(name) or "" for name in (*chains[4], *chains[6], *sets)}
        return tuple(sorted(gone))

    def remove(self) -> None:
        """Take all that is ours away, also what an earlier daemon left."""
        texts = {v: plan.remove_text(self._names, saved) for v, saved in self._saved().items()}
        self._runner.run(*((RESTORE[version], text) for version, text in texts.items()))
        self.collect(frozenset())

    def stands(self) -> bool:
        """Tell whether our jump is in force; where nobody can say, it may be."""
        try:
            for words in SAVE.values():
                commands.find(words[0])
        except LayerFailed:
            return False  # there is no iptables here at all
        try:
            saved = self._saved()
        except LayerFailed:
            return True
        return any(plan.jump(self._names) in saved[v].rules("OUTPUT") for v in plan.VERSIONS)

    def leave_to_programs(self, passes: Iterable[Endpoint]) -> None:
        """Let programs judge this, and report, from the next adoption on."""
        self._passes = tuple(passes)
        self._report = False

    def _orphaned(self, name: str, known: frozenset[str]) -> bool:
        box = self._names.box_of(name)
        return box is not None and box not in known

    def _saved(self) -> dict[int, plan.Saved]:
        """Ask again where it fails: a set that a rule names may go while iptables-save prints."""
        jobs = [(words, "") for words in SAVE.values()]
        failure = LayerFailed("nobody looked")
        for _ in range(LOOKS):
            try:
                texts = self._runner.run(*jobs)
            except LayerFailed as error:
                failure = error
            else:
                return {v: plan.Saved(text) for v, text in zip(SAVE, texts, strict=True)}
        raise failure

    def _is_entered(self, saved: Mapping[int, plan.Saved]) -> bool:
        return all(plan.entered(self._names, saved[v], v) for v in plan.VERSIONS)

    def _is_complete(self, boxes: Sequence[Box], saved: Mapping[int, plan.Saved]) -> bool:
        """Tell whether the chains of these boxes stand, and lead to no others."""
        return (
            self._is_entered(saved)
            and all(len(saved[v].rules(self._names.chain)) == len(boxes) + 1 for v in plan.VERSIONS)
            and all(self._holds(box, saved) for box in boxes)
        )

    def _holds(self, box: Box, saved: Mapping[int, plan.Saved]) -> bool:
        return all(
            plan.holds(self._names, saved[v], box, v, report=self._report) for v in plan.VERSIONS
        )

    def _sizes(self) -> dict[str, str]:
        (text,) = self._runner.run((SET_SIZES, ""))
        return dict(_SIZES.findall(text))

    def _filled(self, box: Box, held: Mapping[str, frozenset[str]]) -> bool:
        known = self._known.get(box.name)
        return known is not None and all(
            held.get(self._names.set(box.name, kind)) == words for kind, words in known.items()
        )

    def _destroy(self, sets: Sequence[str]) -> None:
        if sets:
            self._runner.run((SETS, plan.destroy_text(sets)))

    def _take(self, kind: str) -> str:
        (text,) = self._runner.run((("ipset", "save", kind), ""))
        self._runner.run((SETS, f"flush {kind}\n"))
        return text
