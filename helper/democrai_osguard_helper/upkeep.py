"""What the daemon does by itself: take over at the start, look for drift, repair, collect, report.

What cannot be repaired is frozen, and ended when it stays so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from .journal import JournalFailed
from .layers import LayerFailed
from .protocol import Denial, Notice

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .cgroups import Box, Tree
    from .journal import Journal
    from .keeper import Keeper
    from .layers import Attempt, Layer
    from .protocol import Reply
    from .records import Record

MAX_FAILED_REPAIRS: Final = 3
# The launcher tries this before each command; TCP to it goes nowhere, so nobody need be asked.
_TRIAL: Final = ("255.255.255.255", "tcp")


class Upkeep:
    """Keeps the world as the journal says."""

    def __init__(
        self,
        keeper: Keeper,
        tree: Tree,
        journal: Journal,
        publish: Callable[[int | None, Reply], None],
        name_of: Callable[[str], str | None],
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
        for layer in self._keeper.layers:
            layer.adopt(self._keeper.policies())
            self._keeper.checkpoint(f"{layer.name} adopted")
        self._remove_strangers()

    def tick(self) -> None:
        """Look whether every layer still holds."""
        for layer in self._keeper.layers:
            self.check(layer)
        self._retry_suspended()

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

    def collect(self) -> None:
        """Remove the sandboxes that nobody is in any more."""
        try:
            self._keeper.collect()
        except (LayerFailed, JournalFailed, OSError) as error:
            self._notice(None, "collect_failed", str(error))

    def report(self) -> None:
        """Publish what was refused since the last time."""
        records = self._keeper.records
        boxes = [self._keeper.box(record) for record in records.values()]
        for layer in self._keeper.layers:
            for name, attempts in self._attempts(layer, boxes).items():
                self._keeper.refusals[name] += sum(attempt.count for attempt in attempts)
                for attempt in attempts:
                    if (attempt.address, attempt.protocol) == _TRIAL:
                        continue
                    self._publish(records[name].uid, self._denial(records[name], attempt))

    def _attempts(self, layer: Layer, boxes: list[Box]) -> Mapping[str, tuple[Attempt, ...]]:
        try:
            return layer.attempts(boxes)
        except (LayerFailed, OSError) as error:
            self._notice(None, "report_failed", str(error))
            return {}

    def _denial(self, record: Record, attempt: Attempt) -> Denial:
        return Denial(
            *(record.name, record.subject, record.session),
            *(attempt.address, attempt.port, attempt.protocol),
            self._name_of(attempt.address),
            attempt.count,
        )

    def _holds_all(self, layer: Layer, boxes: list[Box]) -> bool:
        try:
            return len(layer.intact(boxes)) == len(boxes)
        except (LayerFailed, OSError) as error:
            self._notice(None, "check_failed", str(error))
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

    def _remove_strangers(self) -> None:
        """Remove boxes that no record tells of: no peer was moved into one before its record."""
        known = {box.name for box, _ in self._keeper.policies()}
        for box in self._tree.boxes():
            if box.name not in known:
                self._end(box, "stranger")
        for layer in self._keeper.layers:
            layer.collect(frozenset(known))
        for box in self._tree.boxes():
            if box.name not in known:
                box.remove()

    def _end(self, box: Box, code: str) -> None:
        if box.exists() and box.populated():
            box.kill()
            self._notice(None, code, f"ended what ran in {box.name}, of which nothing is known")

    def _notice(self, record: Record | None, code: str, text: str) -> None:
        uid, name = (record.uid, record.name) if record is not None else (None, None)
        self._publish(uid, Notice(name, code, "".join(filter(str.isprintable, text))[:400]))
