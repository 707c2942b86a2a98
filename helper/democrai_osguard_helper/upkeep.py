"""What the daemon does by itself: take over at the start, look for drift, repair, collect, report.

What cannot be repaired is frozen, and ended when it stays so.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from typing import TYPE_CHECKING, Final

from .journal import JournalFailed
from .layers import LayerFailed
from .protocol import Denial, Notice

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from .cgroups import Box, Tree
    from .endpoints import NameRule
    from .journal import Journal
    from .keeper import Keeper
    from .layers import Attempt, Layer
    from .protocol import Reply
    from .records import Record

MAX_FAILED_REPAIRS: Final = 3
LOOKS: Final = 2
MAX_COLLECTED: Final = 64  # in one round: others want to be served too
MAX_REPORTED: Final = 256  # refusals of one user in one round, but for those of the last sandbox
WATCH_SECONDS: Final = 1.0
WATCH_SHARE: Final = 20  # of the time is for others
WATCH_AT_MOST: Final = 30.0  # between two looks, unless one look takes longer than that
# The launcher tries this before each command; TCP to it goes nowhere, so nobody need be asked.
_TRIAL: Final = ("255.255.255.255", "tcp")


def pause_after(spent: float) -> float:
    """Return how long to wait after a look or a repair that took so many seconds.

    What takes long is done less often; but what somebody flushed is not left for minutes.
    """
    return max(WATCH_SECONDS, min(spent * WATCH_SHARE, max(WATCH_AT_MOST, spent)))


class Upkeep:
    """Keeps the world as the journal says."""

    def __init__(
        self,
        keeper: Keeper,
        tree: Tree,
        journal: Journal,
        publish: Callable[[int | None, Reply], None],
        name_of: Callable[[Sequence[NameRule], str], str | None],
    ) -> None:
        self.repairs = 0
        self._keeper = keeper
        self._tree = tree
        self._journal = journal
        self._publish = publish
        self._name_of = name_of

    def start(self) -> None:
        """Adopt what an earlier daemon left; raise LayerFailed if a layer cannot take it over."""
        for name, record in self._journal.load():
            box = self._tree.box(name)
            if record is None:
                self._end(box, "damaged_record")
                self._journal.forget(name)
            elif box.exists() and box.identity() == record.identity:
                self._keeper.records[name] = record
            else:
                self._journal.forget(name)
        # The programs first: with them beside it, the firewall leaves loopback to them.
        for layer in reversed(self._keeper.layers):
            layer.adopt(self._keeper.policies())
            self._keeper.checkpoint(f"{layer.name} adopted")
        self._remove_strangers()

    def tick(self) -> None:
        """Look whether every layer still holds."""
        for layer in self._keeper.layers:
            self.check(layer)
        self._retry_suspended()
        self._look_for_strangers()

    def check(self, layer: Layer) -> None:
        """Repair a layer that lost something; freeze what it cannot hold again."""
        policies = self._keeper.policies()
        boxes = [box for box, _ in policies]
        if self._holds_all(layer, boxes):
            return
        self._notice(None, "drift", f"the {layer.name} layer was changed by somebody else")
        try:
            layer.adopt(policies)
            repaired = self._holds_all(layer, boxes)
        except LayerFailed as error:
            self._notice(None, "repair_failed", str(error))
            repaired = False
        if repaired:
            self.repairs += 1
            self._notice(None, "repaired", f"the {layer.name} layer holds again")
        else:
            self._suspend_all(layer)

    def welcome(self, layer: str) -> None:
        """Tell that a layer holds which was missing."""
        self._notice(None, "layer_joined", f"the {layer} layer holds now")

    def collect(self, most: int | None = MAX_COLLECTED) -> None:
        """Remove the sandboxes that nobody is in any more; what they were refused is told first."""
        try:
            empty = self._keeper.empty(most)
            self._report_all(empty)
            self._keeper.collect(empty)
        except (LayerFailed, JournalFailed, OSError) as error:
            self._notice(None, "collect_failed", str(error))

    def report(self) -> None:
        """Publish what was refused since the last time, so much of each user at most.

        The rest waits where it was counted, so that a user whose sandboxes try everything at once
        does not keep the daemon from others.
        """
        order = list(self._keeper.records.values())
        random.shuffle(order)  # else the same ones would be left over each time
        self._report_all(order, MAX_REPORTED)

    def _report_all(self, order: Sequence[Record], most: float = math.inf) -> None:
        records, told = {each.name: each for each in order}, Counter[int]()
        account = self._keeper.account_of
        for layer in self._keeper.layers:
            boxes = (self._keeper.box(each) for each in order if told[account(each.uid)] < most)
            for name, attempts in self._attempts(layer, boxes):
                told[account(records[name].uid)] += len(attempts)
                self._report(records[name], attempts)

    def _report(self, record: Record, attempts: tuple[Attempt, ...]) -> None:
        self._keeper.refusals[record.name] += sum(attempt.count for attempt in attempts)
        for attempt in attempts:
            if (attempt.address, attempt.protocol) != _TRIAL:
                self._publish(record.uid, self._denial(record, attempt))

    def _attempts(
        self, layer: Layer, boxes: Iterable[Box]
    ) -> Iterator[tuple[str, tuple[Attempt, ...]]]:
        try:
            yield from layer.attempts(boxes)
        except (LayerFailed, OSError) as error:
            self._notice(None, "report_failed", str(error))

    def _denial(self, record: Record, attempt: Attempt) -> Denial:
        return Denial(
            *(record.name, record.uid, record.subject, record.session),
            *(attempt.address, attempt.port, attempt.protocol),
            # Of its own names only: what others look up is nobody's business.
            self._name_of(record.names, attempt.address),
            attempt.count,
        )

    def _holds_all(self, layer: Layer, boxes: list[Box]) -> bool:
        """Look twice before a failed look counts: another writer may have been in the middle."""
        for _ in range(LOOKS):
            try:
                return len(layer.intact(boxes)) == len(boxes)
            except (LayerFailed, OSError) as error:
                failure = str(error)
        self._notice(None, "check_failed", failure)
        return False

    def _suspend_all(self, layer: Layer) -> None:
        others = [other for other in self._keeper.layers if other is not layer]
        for record in list(self._keeper.records.values()):
            box = self._keeper.box(record)
            if any(self._holds_all(other, [box]) for other in others):
                continue  # the other layer holds it: say so, try again, let it run
            self._keeper.suspend(record)
            self._notice(record, "frozen", f"the {layer.name} layer cannot be repaired")

    def _retry_suspended(self) -> None:
        for name, failures in list(self._keeper.suspended.items()):
            try:
                self._retry(self._keeper.records[name], failures)
            except OSError as error:
                self._notice(self._keeper.records[name], "retry_failed", str(error))

    def _retry(self, record: Record, failures: int) -> None:
        box = self._keeper.box(record)
        if all(self._holds_all(layer, [box]) for layer in self._keeper.layers):
            del self._keeper.suspended[record.name]
            box.thaw()
            self._notice(record, "thawed", "every layer holds again")
        elif failures >= MAX_FAILED_REPAIRS:
            box.kill()
            self._notice(record, "killed", "the sandbox could not be held")
        else:
            self._keeper.suspended[record.name] = failures + 1

    def _look_for_strangers(self) -> None:
        """End what root put into a folder of our tree: no layer knows it."""
        try:
            if self._strangers():
                self._remove_strangers()
        except (LayerFailed, OSError) as error:
            self._notice(None, "stranger", str(error))

    def _remove_strangers(self) -> None:
        """Remove boxes that no record tells of: no peer was moved into one before its record."""
        for box in self._strangers():
            self._end(box, "stranger")
        for layer in self._keeper.layers:
            layer.collect(self._known())
        for box in self._strangers():
            box.remove()

    def _strangers(self) -> list[Box]:
        known = self._known()
        return [box for box in self._tree.boxes() if box.name not in known]

    def _known(self) -> frozenset[str]:
        return frozenset(box.name for box, _ in self._keeper.policies())

    def _end(self, box: Box, code: str) -> None:
        if box.exists() and box.populated():
            box.kill()
            self._notice(None, code, f"ended what ran in {box.name}, of which nothing is known")

    def _notice(self, record: Record | None, code: str, text: str) -> None:
        uid, name = (record.uid, record.name) if record is not None else (None, None)
        self._publish(uid, Notice(name, code, "".join(filter(str.isprintable, text))[:400]))
