"""Keeps the running sandboxes of this user in step with what people decide.

Here decisions become calls to the helper, and refusals become questions; what follows from a
decision is worked out elsewhere. The helper takes calls from outside every sandbox only, so this
runs in the process that serves the approval page, or beside an application. A sandbox follows the
store whose decisions changed it first; another store of the same user leaves it alone.
"""

from __future__ import annotations

import hashlib
import logging
import os
import threading
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit

from democrai_osguard.access import Subject
from democrai_osguard.enforcement.denials import DenialDesk
from democrai_osguard.enforcement.reach import Reach, reach
from democrai_osguard.errors import OsGuardError
from democrai_osguard_helper.client import Client, HelperRefused, HelperUnavailable
from democrai_osguard_helper.protocol import Denial, Listing, Notice, ProtocolViolation, Update

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import TracebackType

    from democrai_osguard.approvals.records import Standing
    from democrai_osguard.approvals.service import ApprovalService
    from democrai_osguard.approvals.store import Store

ROUND_SECONDS = 0.4  # until a new sandbox is seen; a decision is seen at once
_PAGE = 1000
_FAILURES = (HelperUnavailable, HelperRefused, ProtocolViolation, OsGuardError, RuntimeError)
_log = logging.getLogger("democrai_osguard.enforcement")


class Follower:
    """Brings each sandbox to what was decided, one round at a time."""

    def __init__(self, service: ApprovalService) -> None:
        self._store = service.store
        self._label = label_of(service.store)
        self._asked: dict[str, Reach] = {}  # what a sandbox was made with never changes
        self._told: dict[str, Reach] = {}
        self._decisions: list[Standing] = []
        self._generation = -1

    def settle(self, client: Client) -> int:
        """Update every sandbox whose reach has changed; return how many there were."""
        generation = self._store.generation()
        if generation != self._generation:
            self._decisions = list(self._standing())
            self._generation = generation
        alive = [each for each in client.list().sandboxes if each.uid == os.geteuid()]
        self._forget({each.sandbox for each in alive})
        return sum(self._settle_one(client, each) for each in alive)

    def wait(self, known: int) -> int:
        """Wait until something was decided, or until it is time to look again."""
        return self._store.wait(known, ROUND_SECONDS)

    def _settle_one(self, client: Client, sandbox: Listing) -> bool:
        name = sandbox.sandbox
        if sandbox.follows not in {None, self._label}:
            return False  # another store's decisions hold there
        try:
            wanted = self._wanted(client, sandbox)
            untouched = sandbox.follows is None and wanted == self._asked[name]
            if untouched or self._told.get(name) == wanted:
                return False
            client.update(Update(name, wanted.endpoints, wanted.names, self._label))
        except (HelperRefused, OsGuardError) as error:
            if getattr(error, "code", "") != "unknown_sandbox":  # that one has just ended
                _log.warning("sandbox %s keeps its old policy: %s", name, error)
            return False
        self._told[name] = wanted
        return True

    def _wanted(self, client: Client, sandbox: Listing) -> Reach:
        if sandbox.sandbox not in self._asked:
            shown = client.show(sandbox.sandbox)
            self._asked[sandbox.sandbox] = Reach(shown.endpoints, shown.names)
        subject = Subject.parse(f"{sandbox.subject.type}:{sandbox.subject.name}")
        return reach(self._asked[sandbox.sandbox], self._decisions, subject, sandbox.session)

    def _standing(self) -> Iterator[Standing]:
        after = 0
        while page := self._store.standing(limit=_PAGE, after=after):
            yield from page
            after = page[-1].id

    def _forget(self, alive: set[str]) -> None:
        for known in (self._asked, self._told):
            for name in known.keys() - alive:
                del known[name]


def label_of(store: Store) -> str:
    """Return by what the helper tells the decisions of one store from those of another. Pure."""
    parts = urlsplit(getattr(store, "url", None) or "")
    place = parts.netloc.rpartition("@")[2]  # no password, not even as a sum
    text = f"{parts.scheme}//{place}{parts.path}".encode(errors="surrogateescape")
    return hashlib.sha256(text).hexdigest()[:16]


class EgressLink:
    """The two lines between the helper and the approvals, each in a thread of its own."""

    def __init__(self, service: ApprovalService, path: str | None = None) -> None:
        self._follower = Follower(service)
        self._desk = DenialDesk(service)
        self._path = path
        self._ended = threading.Event()
        self._listening: Client | None = None
        self._threads = [
            threading.Thread(target=self._again, args=(act,), name=name, daemon=True)
            for name, act in (("egress-policy", self._follow), ("egress-refusals", self._listen))
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        if self._listening is not None:
            self._listening.hang_up()
        for thread in self._threads:
            thread.join()

    def _again(self, act: Callable[[], None]) -> None:
        """Act until the end; what fails is said once and tried again, and opens nothing."""
        said = ""
        while not self._ended.is_set():
            try:
                act()
            except _FAILURES as error:
                if str(error) != said and not self._ended.is_set():
                    # A host without a helper has nothing to follow; `status` says so.
                    absent = isinstance(error, HelperUnavailable)
                    level = logging.INFO if absent else logging.WARNING
                    _log.log(level, "egress does not follow the approvals: %s", error)
                said = str(error)
            self._ended.wait(ROUND_SECONDS)

    def _follow(self) -> None:
        known = -1
        with Client(self._path) as client:
            while not self._ended.is_set():
                self._follower.settle(client)
                known = self._follower.wait(known)

    def _listen(self) -> None:
        with Client(self._path) as client:
            self._listening = client
            if self._ended.is_set():
                return  # nobody would hang up on us any more
            self._desk.follow(told(client.events()))


def told(events: Iterable[Denial | Notice]) -> Iterator[Denial | Notice]:
    """Pass events on; of what a person should know, say it."""
    for event in events:
        if isinstance(event, Notice):
            where = f"sandbox {event.sandbox}" if event.sandbox else "the helper"
            _log.warning("%s: %s: %s", where, event.code, event.text)
        yield event
