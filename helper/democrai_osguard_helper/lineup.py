"""Which layers hold on this host: each is tried alone at the start, and again where it failed.

While a machine boots, the firewall's lock is busy and a probe may come too late: what fails then
is not missing for ever. A layer that stays out must not refuse what the other one allows, so what
it has here is removed, and where that fails it is said and tried again too.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

from .boxes import Boxes
from .bpf_layer import BpfLayer
from .endpoints import Endpoint, parse_network
from .fields import MAX_PROSE
from .firewall_layer import FirewallLayer
from .keeper import no_checkpoint
from .layers import LayerFailed
from .protocol import LAYERS

if TYPE_CHECKING:
    from collections.abc import Collection

    from .cgroups import Box, Tree
    from .commands import Commands
    from .firewall_plan import Names
    from .keeper import Keeper
    from .layers import Layer
    from .probes import Probe

TRIALS: Final = 3
SOON: Final = 2.0  # seconds until a layer that failed is tried again; each time twice as long
AT_MOST: Final = 60.0
_CLINGS: Final = "; rules that it left may refuse too much, and could not be removed yet: "
# Which loopback listener is the sandbox's own only the programs can tell.
LOOPBACK: Final = (
    Endpoint(parse_network("127.0.0.0/8"), None, "tcp"),
    Endpoint(parse_network("::1"), None, "tcp"),
)


class Lineup:
    """The layers that hold here, and why the others do not."""

    def __init__(
        self,
        tree: Tree,
        probe: Probe,
        names: Names,
        wanted: Collection[str],
        commands: Commands,
    ) -> None:
        self.reasons: dict[str, str] = {}  # each layer that exists → why it does not work, or ""
        self.pause = SOON
        self._tree = tree
        self._probe = probe
        self._names = names
        self._wanted = wanted
        self._commands = commands
        self._bpf = BpfLayer()
        self._firewall = self._new_firewall(beside=False)
        self._clings = False  # rules of a layer that is not used could not be removed

    def choose(self) -> list[Layer]:
        """Try each layer on a box of its own, and again: another writer may spoil an attempt."""
        self._judge("bpf", self._trial(self._bpf))
        self._firewall = self._new_firewall(beside=self._holds("bpf"))
        self._judge("firewall", self._trial(self._firewall))
        self._let_go()
        return self.holding()

    def holding(self) -> list[Layer]:
        """Return the layers that hold, in the order in which boxes are closed.

        The firewall comes first: once programs are attached they answer for it.
        """
        layers: tuple[Layer, ...] = (self._firewall, self._bpf)
        return [layer for layer in layers if self._holds(layer.name)]

    def is_wanting(self) -> bool:
        """Tell whether there is something to try again."""
        return self._clings or any(self.reasons[name] for name in self._wanted)

    def try_again(self, keeper: Keeper) -> tuple[str, ...]:
        """Try once more what failed; let what holds now hold every sandbox, and return it."""
        self.pause = min(2 * self.pause, AT_MOST)
        missing = [name for name in LAYERS if name in self._wanted and not self._holds(name)]
        joined = tuple(name for name in missing if self._joins(name, keeper))
        self._let_go()
        return joined

    def withdraw_programs(self, boxes: Collection[Box]) -> None:
        """Take away the programs of an earlier daemon where the operator wants none.

        Nobody would fill their maps: they would refuse what is approved from now on.
        """
        if "bpf" not in self._wanted and self._holds("firewall"):
            self._bpf.withdraw(boxes)

    def _holds(self, name: str) -> bool:
        return not self.reasons[name]

    def _judge(self, name: str, reason: str) -> None:
        off = "" if name in self._wanted else f"{name}: switched off by the operator"
        self.reasons[name] = off or reason

    def _new_firewall(self, *, beside: bool) -> FirewallLayer:
        passes = LOOPBACK if beside else ()
        return FirewallLayer(self._names, passes=passes, report=not beside, runner=self._commands)

    def _trial(self, layer: Layer) -> str:
        """Return why a layer cannot be used."""
        reason = ""
        for _ in range(TRIALS if layer.name in self._wanted else 0):
            reason = self._tried(layer)
            if not reason:
                break
        return reason

    def _tried(self, layer: Layer) -> str:
        trial = Boxes(self._tree, (layer,), self._probe, no_checkpoint)
        try:
            reason = self._probe.control() or layer.reason()
            if not reason:
                trial.refill()
                trial.empty()
        except (LayerFailed, OSError) as error:
            return str(error)
        return reason

    def _joins(self, name: str, keeper: Keeper) -> bool:
        join = self._programs_join if name == "bpf" else self._firewall_joins
        self._judge(name, join(keeper))
        if not self._holds(name):
            return False
        keeper.use(self.holding())
        with contextlib.suppress(LayerFailed):  # else they stay: every layer has adopted them
            keeper.boxes.empty()  # no box is given away that was not tried on each layer
        return True

    def _programs_join(self, keeper: Keeper) -> str:
        bpf = BpfLayer()
        reason = self._tried(bpf)
        if reason:
            return reason
        policies = keeper.policies()
        try:
            bpf.adopt(policies)
        except LayerFailed as error:
            bpf.withdraw([box for box, _ in policies])
            return str(error)
        self._bpf = bpf
        self._firewall.leave_to_programs(LOOPBACK)
        if self._holds("firewall"):
            with contextlib.suppress(LayerFailed):  # the regular look repairs it
                self._firewall.adopt(policies)
        return ""

    def _firewall_joins(self, keeper: Keeper) -> str:
        self._firewall = self._new_firewall(beside=self._holds("bpf"))
        lacking = self._firewall.lacking()
        if lacking:
            return lacking
        try:
            # First what runs: a chain without its boxes would refuse them everything.
            self._firewall.adopt(keeper.policies())
        except LayerFailed as error:
            return str(error)
        return self._tried(self._firewall)

    def _let_go(self) -> None:
        """Remove what a firewall that is not used has here, while the programs hold."""
        reason, _, _ = self.reasons["firewall"].partition(_CLINGS)
        failure = self._cannot_let_go() if reason and self._holds("bpf") else ""
        self._clings = bool(failure)
        self.reasons["firewall"] = (f"{reason}{_CLINGS}{failure}" if failure else reason)[
            :MAX_PROSE
        ]

    def _cannot_let_go(self) -> str:
        try:
            self._firewall.remove()
        except LayerFailed as error:
            return str(error) if self._firewall.stands() else ""
        return ""
