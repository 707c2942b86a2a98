"""Puts the parts together: which layers this host has, and the daemon's regular work."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from . import resolving
from .accounts import Accounts
from .cgroups import Tree
from .commands import Commands
from .desk import Desk
from .diary import Diary
from .firewall_plan import Names
from .journal import Journal
from .keeper import Keeper, no_checkpoint
from .layers import LayerFailed
from .lineup import Lineup
from .loop import Loop
from .names import NameBook
from .probes import Probe
from .protocol import LAYERS, Notice
from .refreshing import Refreshing
from .ruleset_news import RulesetNews
from .server import Server
from .upkeep import WATCH_SECONDS, Upkeep, pause_after
from .warming import Warmer

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from .protocol import Reply

COLLECT_SECONDS: Final = 1.0
REPORT_SECONDS: Final = 0.5
CATCH_UP_SECONDS: Final = 0.05
ACCOUNTS_SECONDS: Final = 10.0


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
    may_leave: frozenset[str] = frozenset()
    require_no_new_privs: bool = False


class Service:
    """A whole daemon, but for its process."""

    def __init__(
        self,
        settings: Settings,
        listen: Callable[[], socket.socket],
        checkpoint: Callable[[str], None] = no_checkpoint,
    ) -> None:
        self.loop = Loop()
        self.diary = Diary(self.loop.now)
        self._settings = settings
        self._journal = Journal(f"{settings.state}/{settings.instance}")
        self._tree = Tree(settings.mount, settings.instance)
        self._tree.create()
        self._claim = self._tree.claim()  # before anything in it is touched
        listener = self._listened(listen)  # and not before: another helper may be listening there
        self._probe = Probe()
        self._commands = Commands()
        names = Names(settings.instance, self._tree.name)
        self._lineup = Lineup(self._tree, self._probe, names, settings.layers, self._commands)
        layers = self._lineup.choose()
        self.keeper = Keeper(self._tree, layers, self._probe, self._journal, checkpoint)
        self._accounts = Accounts()
        self.keeper.account_of = self._accounts.of
        self.keeper.boxes.target = settings.ready_boxes
        self.keeper.may_leave = settings.may_leave
        self.keeper.rights_for_good = settings.require_no_new_privs
        self._news: RulesetNews | None = None
        self.changed: Callable[[], None] = lambda: None  # called when a layer joined
        self._warmer = Warmer(self._tree)
        self.server = Server(self.loop, listener, self._desk, self._warmer.nudge)
        self.server.account_of = self._accounts.of

    def _listened(self, listen: Callable[[], socket.socket]) -> socket.socket:
        try:
            return listen()
        except OSError:
            with contextlib.suppress(OSError):  # sandboxes of an earlier daemon are in it
                self._tree.remove()
            raise

    def start(self) -> None:
        """Adopt what is there, then begin the regular work."""
        self._upkeep.start()
        self._lineup.withdraw_programs([box for box, _ in self.keeper.policies()])
        self.loop.every(COLLECT_SECONDS, self._upkeep.collect)
        self.loop.later(WATCH_SECONDS, self._watch)
        self.loop.every(REPORT_SECONDS, self._upkeep.report)
        self._hear_of_changes()
        self.loop.later(self._lineup.pause, self._try_again)
        self.loop.every(1.0, lambda: self._resolving.refresh(self._refreshing.due()))
        self.loop.every(ACCOUNTS_SECONDS, self._accounts.refresh)
        self._catch_up()
        self._refill()

    def summary(self) -> str:
        """Say in one line which layers are missing."""
        return "; ".join(filter(None, self._lineup.reasons.values())) or "every layer holds"

    def stop(self) -> None:
        """Leave what holds sandboxes; where there are none, leave nothing.

        Raise LayerFailed where a layer does not let go: the next start tidies up.
        """
        self.server.close()
        self._warmer.close()
        if self._news is not None:
            self._news.close()
        self._resolving.close()
        self._commands.close()
        try:
            self._tidy_up()
        finally:
            os.close(self._claim)
            self._probe.close()
            self._journal.close()
            self.loop.close()

    def _tidy_up(self) -> None:
        self.keeper.boxes.empty()
        self._upkeep.collect(None)  # nobody has to be served any more
        if not self.keeper.records:
            for layer in self.keeper.layers:
                layer.remove()
            self._tree.remove()

    def _desk(self, server: Server) -> Desk:
        settings = self._settings
        book = NameBook(self.loop.now, settings.refresh_seconds)

        def publish(uid: int | None, message: Reply) -> None:
            if isinstance(message, Notice):
                self.diary.say(_words(message))
            server.publish(uid, message)

        self._refreshing = Refreshing(self.keeper, book, publish)
        path = settings.resolver_socket
        start = (lambda: resolving.dial(path)) if path else resolving.spawn
        self._resolving = resolving.Resolving(self.loop, self._refreshing.heard, start)
        self._upkeep = Upkeep(self.keeper, self._tree, self._journal, publish, book.name_of)
        parts = self.keeper, self._upkeep, book, self._resolving
        return Desk(
            settings.instance, *parts, self._lineup.reasons, server.listeners, self.diary.say
        )

    def _watch(self) -> None:
        """Look for drift; where that takes long, because there is much, less often."""
        begun = self.loop.now()
        self._upkeep.tick()
        self.loop.later(pause_after(self.loop.now() - begun), self._watch)

    def _catch_up(self) -> None:
        """Give sandboxes what names stand for now; as much time again is for others."""
        begun = self.loop.now()
        is_behind = self._refreshing.catch_up()
        spent = self.loop.now() - begun
        self.loop.later(spent if is_behind else CATCH_UP_SECONDS, self._catch_up)

    def _try_again(self) -> None:
        """Try the layers that failed again, until none is missing."""
        if not self._lineup.is_wanting():
            return
        for name in self._lineup.try_again(self.keeper):
            self._upkeep.welcome(name)
            self._hear_of_changes()
            self.changed()
        self.loop.later(self._lineup.pause, self._try_again)

    def _hear_of_changes(self) -> None:
        """Be told of changes where rules hold alone: there a flush is an open door."""
        if self._news is not None:
            self._news.close()
            self._news = None
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
        except LayerFailed as error:
            self.diary.say(f"no box could be made: {error}")
            pause = 1.0  # whoever asks for a sandbox meanwhile is told the reason
        self.loop.later(pause, self._refill)

    def _prepare(self) -> None:
        """Do beforehand what the next peer would have to wait for."""
        if self.keeper.boxes.is_short():
            self.keeper.boxes.refill()
        if not self._lineup.reasons["firewall"]:
            self._commands.prepare()


def _words(notice: Notice) -> str:
    where = f"sandbox {notice.sandbox}: " if notice.sandbox else ""
    return f"{where}{notice.code}: {notice.text}"
