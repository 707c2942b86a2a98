"""Puts the parts together: which layers this host has, and the daemon's regular work."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from . import resolving
from .boxes import Boxes
from .bpf_layer import BpfLayer
from .cgroups import Tree
from .commands import Commands
from .desk import Desk
from .endpoints import Endpoint, parse_network
from .firewall_layer import FirewallLayer
from .firewall_plan import Names
from .journal import Journal
from .keeper import Keeper, no_checkpoint
from .layers import LayerFailed
from .loop import Loop
from .names import NameBook
from .probes import Probe
from .protocol import LAYERS
from .refreshing import Refreshing
from .ruleset_news import RulesetNews
from .server import Server
from .upkeep import Upkeep
from .warming import Warmer

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from .layers import Layer

WATCH_SECONDS: Final = 1.0
WATCH_SHARE: Final = 20  # of the time is for others
COLLECT_SECONDS: Final = 1.0
REPORT_SECONDS: Final = 0.5
LOOPBACK: Final = (
    Endpoint(parse_network("127.0.0.0/8"), None, "tcp"),
    Endpoint(parse_network("::1"), None, "tcp"),
)


@dataclass(frozen=True, slots=True)
class Settings:
    """What the operator chose."""

    instance: str
    state: str
    mount: str
    layers: tuple[str, ...] = LAYERS
    refresh_seconds: float = 60.0
    resolver_socket: str | None = None
    ready_boxes: int = 2


class Service:
    """A whole daemon, but for its process."""

    def __init__(
        self,
        settings: Settings,
        listener: socket.socket,
        checkpoint: Callable[[str], None] = no_checkpoint,
    ) -> None:
        self.loop = Loop()
        self._settings = settings
        self._journal = Journal(f"{settings.state}/{settings.instance}")
        self._tree = Tree(settings.mount, settings.instance)
        self._tree.create()
        self._claim = self._tree.claim()  # before anything in it is touched
        self._probe = Probe()
        self._names = Names(settings.instance, self._tree.name)
        self.reasons: dict[str, str] = {}
        self._commands = Commands()
        layers = self._choose()
        self.keeper = Keeper(self._tree, layers, self._probe, self._journal, checkpoint)
        self.keeper.boxes.target = settings.ready_boxes
        self._news: RulesetNews | None = None
        self._warmer = Warmer(self._tree)
        self.server = Server(self.loop, listener, self._desk, self._warmer.nudge)

    def start(self) -> None:
        """Adopt what is there, then begin the regular work."""
        self._upkeep.start()
        self.loop.every(COLLECT_SECONDS, self._upkeep.collect)
        self.loop.later(WATCH_SECONDS, self._watch)
        self.loop.every(REPORT_SECONDS, self._upkeep.report)
        self._hear_of_changes()
        self.loop.every(1.0, lambda: self._resolving.ask(self._refreshing.due(), lambda: None))
        self._refill()

    def stop(self) -> None:
        """Leave what holds sandboxes; where there are none, leave nothing."""
        self.server.close()
        self._warmer.close()
        if self._news is not None:
            self._news.close()
        self._resolving.close()
        self._commands.close()
        self.keeper.boxes.empty()
        self._upkeep.collect()
        if not self.keeper.records:
            for layer in self.keeper.layers:
                layer.remove()
            self._tree.remove()
        os.close(self._claim)
        self._probe.close()
        self._journal.close()
        self.loop.close()

    def _desk(self, server: Server) -> Desk:
        settings = self._settings
        book = NameBook(self.loop.now, settings.refresh_seconds)
        self._refreshing = Refreshing(self.keeper, book, server.publish)
        path = settings.resolver_socket
        start = (lambda: resolving.dial(path)) if path else resolving.spawn
        self._resolving = resolving.Resolving(self.loop, self._refreshing.heard, start)
        self._upkeep = Upkeep(self.keeper, self._tree, self._journal, server.publish, book.name_of)
        return Desk(
            settings.instance, self.keeper, self._upkeep, book, self._resolving, self.reasons
        )

    def _choose(self) -> list[Layer]:
        """Try each layer alone on a box of its own; the order is that in which boxes are closed.

        The firewall comes first: once programs are attached they answer for it.
        """
        control = self._probe.control()
        bpf = BpfLayer()
        self.reasons["bpf"] = control or self._trial(bpf)
        programs_hold = not self.reasons["bpf"]
        # Which loopback listener is the sandbox's own only the programs can tell.
        passes = LOOPBACK if programs_hold else ()
        firewall = FirewallLayer(
            self._names, passes=passes, report=not programs_hold, runner=self._commands
        )
        self.reasons["firewall"] = control or self._trial(firewall)
        return [layer for layer in (firewall, bpf) if not self.reasons[layer.name]]

    def _trial(self, layer: Layer) -> str:
        if layer.name not in self._settings.layers:
            return f"{layer.name}: switched off by the operator"
        if layer.reason():
            return layer.reason()
        trial = Boxes(self._tree, (layer,), self._probe, no_checkpoint)
        try:
            trial.refill()
            trial.empty()
        except (LayerFailed, OSError) as error:
            return str(error)
        return ""

    def _watch(self) -> None:
        """Look for drift; where that takes long, because there is much, less often."""
        begun = self.loop.now()
        self._upkeep.tick()
        spent = self.loop.now() - begun
        self.loop.later(max(WATCH_SECONDS, spent * WATCH_SHARE), self._watch)

    def _hear_of_changes(self) -> None:
        """Be told of changes where rules hold alone: there a flush is an open door."""
        if [layer.name for layer in self.keeper.layers] != ["firewall"]:
            return
        (firewall,) = self.keeper.layers
        try:
            self._news = RulesetNews(self.loop, lambda: self._upkeep.check(firewall))
        except OSError:
            return  # the regular look goes on

    def _refill(self) -> None:
        pause = 0.02
        try:
            self._prepare()
        except LayerFailed:
            pause = 1.0  # whoever asks for a sandbox meanwhile is told the reason
        self.loop.later(pause, self._refill)

    def _prepare(self) -> None:
        """Do beforehand what the next peer would have to wait for."""
        if self.keeper.boxes.is_short():
            self.keeper.boxes.refill()
        if not self.reasons["firewall"]:
            self._commands.prepare()
