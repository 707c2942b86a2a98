"""Egress held by iptables, ip6tables and ipset on the cgroup of each box.

The plan is pure and elsewhere; here it is run. Rules go before the cgroup does: the legacy backend
refuses every later change of the table while a rule names a cgroup that is gone.
"""

from __future__ import annotations

import errno
import re
from typing import TYPE_CHECKING, Final, Protocol

from . import commands
from . import firewall_plan as plan
from .commands import RESTORE, SAVE, SET_NAMES, SET_SIZES, SETS, Commands
from .layers import Attempt, LayerFailed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from .cgroups import Box
    from .endpoints import Endpoint
    from .layers import Policy

_DENIED: Final = re.compile(r"add \S+ (\S+),(tcp|udp):(\d+)")
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
        self._reason: str | None = None

    def reason(self) -> str:
        """Write our chain and the jump, unless they stand: what this host cannot do shows here."""
        if self._reason is None:
            try:
                for words in (*RESTORE.values(), *SAVE.values(), SETS):
                    commands.find(words[0])
                if not self._is_entered(self._saved()):
                    self.rebuild(())
                self._runner.run((SET_NAMES, ""))
                self._reason = ""
            except LayerFailed as error:
                self._reason = f"firewall: {error}"
        return self._reason

    def prepare(self, box: Box) -> None:
        """Make empty sets and the chains that mention them."""
        names, report = self._names, self._report
        self._runner.run((SETS, plan.create_text(names, box, report=report)))
        texts = {v: plan.prepare_text(names, box, v, report=report) for v in plan.VERSIONS}
        self._runner.run(*((RESTORE[version], text) for version, text in texts.items()))
        self._known[box.name] = _EMPTY

    def adopt(self, policies: Sequence[Policy]) -> None:
        """Fill the sets first, then write all chains anew in one transaction per family."""
        for box, endpoints in policies:
            self._runner.run((SETS, plan.create_text(self._names, box, report=self._report)))
            self._known[box.name] = None
            self.apply(box, endpoints)
        self.rebuild([box for box, _ in policies])

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
        """Compare what iptables-save prints with the plan, and the sizes of the sets."""
        saved = self._saved()
        if not self._is_entered(saved):
            return frozenset()
        sizes = self._sizes()
        return frozenset(
            box.name for box in boxes if self._holds(box, saved) and self._filled(box, sizes)
        )

    def rebuild(self, boxes: Iterable[Box]) -> None:
        """Write all chains anew in one transaction per family."""
        saved, boxes = self._saved(), tuple(boxes)
        names, report = self._names, self._report
        self._runner.run(
            *(
                (RESTORE[v], plan.whole_text(names, boxes, v, saved[v], report=report))
                for v in plan.VERSIONS
            )
        )

    def attempts(self, boxes: Iterable[Box]) -> Mapping[str, tuple[Attempt, ...]]:
        """Read and empty the sets in which refused packets were noted."""
        if not self._report:
            return {}
        sizes = self._sizes()
        found = {}
        for box in boxes:
            kinds = [self._names.set(box.name, f"d{v}") for v in plan.VERSIONS]
            lines = [self._take(kind) for kind in kinds if sizes.get(kind, "0") != "0"]
            found[box.name] = tuple(
                Attempt(address, int(port), word, 1)
                for text in lines
                for address, word, port in _DENIED.findall(text)
            )
        return found

    def drop(self, boxes: Sequence[Box]) -> None:
        """Remove the chains, then the sets that they mentioned."""
        boxes = [box for box in boxes if box.name in self._known]
        if not boxes:
            return
        text = plan.drop_text(self._names, boxes)
        self._runner.run(*((RESTORE[version], text) for version in plan.VERSIONS))
        kinds = [f"{k}{v}" for k in ("tupd" if self._report else "tup") for v in plan.VERSIONS]
        sets = [self._names.set(box.name, kind) for box in boxes for kind in kinds]
        self._runner.run((SETS, plan.destroy_text(sets)))
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
        if sets:
            self._runner.run((SETS, plan.destroy_text(sets)))
        gone = {self._names.box_of(name) or "" for name in (*chains[4], *chains[6], *sets)}
        return tuple(sorted(gone))

    def remove(self) -> None:
        """Take the jump and our chain away: the end of an instance without boxes."""
        text = plan.remove_text(self._names)
        self._runner.run(*((RESTORE[version], text) for version in plan.VERSIONS))

    def _orphaned(self, name: str, known: frozenset[str]) -> bool:
        box = self._names.box_of(name)
        return box is not None and box not in known

    def _saved(self) -> dict[int, plan.Saved]:
        texts = self._runner.run(*((words, "") for words in SAVE.values()))
        return {version: plan.Saved(text) for version, text in zip(SAVE, texts, strict=True)}

    def _is_entered(self, saved: Mapping[int, plan.Saved]) -> bool:
        return all(plan.entered(self._names, saved[v], v) for v in plan.VERSIONS)

    def _holds(self, box: Box, saved: Mapping[int, plan.Saved]) -> bool:
        return all(
            plan.holds(self._names, saved[v], box, v, report=self._report) for v in plan.VERSIONS
        )

    def _sizes(self) -> dict[str, str]:
        (text,) = self._runner.run((SET_SIZES, ""))
        return dict(_SIZES.findall(text))

    def _filled(self, box: Box, sizes: Mapping[str, str]) -> bool:
        known = self._known.get(box.name)
        return known is not None and all(
            sizes.get(self._names.set(box.name, kind)) == str(len(words))
            for kind, words in known.items()
        )

    def _take(self, kind: str) -> str:
        (text,) = self._runner.run((("ipset", "save", kind), ""))
        self._runner.run((SETS, f"flush {kind}\n"))
        return text
