"""Keeps sandboxes: makes them, changes them, ends them. The only writer of journal and layers.

Order is what makes a crash harmless: first the journal, then the layers; a peer is moved only
into a box that is closed, tried, filled and written down.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from . import crowd, foreign_programs, sockets
from .boxes import Boxes
from .journal import JournalFailed
from .layers import LayerFailed
from .peers import PeerRefused
from .records import MAX_POLICY, Cover, Record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from .cgroups import Box, Tree
    from .endpoints import Endpoint, NameRule
    from .journal import Journal
    from .layers import Layer
    from .peers import Peer
    from .probes import Probe
    from .protocol import Confine

MAX_SANDBOXES: Final = 2048
MAX_PER_USER: Final = 1024


class Refusal(Exception):
    """The keeper will not or cannot do it; `code` is stable."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


def no_checkpoint(_step: str) -> None:
    """Pass: only tests stop the daemon at a step."""


class Keeper:
    """All sandboxes of one instance."""

    def __init__(
        self,
        tree: Tree,
        layers: Sequence[Layer],
        probe: Probe,
        journal: Journal,
        checkpoint: Callable[[str], None] = no_checkpoint,
    ) -> None:
        self.account_of: Callable[[int], int] = lambda uid: uid  # for whom a user counts
        self.left_behind: Callable[[str, str], Sequence[str]] = foreign_programs.left_behind
        self.may_leave = frozenset[str]()  # of these, as the operator says
        self.rights_for_good = False  # whether a peer must have no_new_privs
        self.layers = tuple(layers)
        self.boxes = Boxes(tree, self.layers, probe, checkpoint)
        self.records: dict[str, Record] = {}
        self.refusals = Counter[str]()  # what each sandbox was refused, as far as we saw
        self.suspended: dict[str, int] = {}  # frozen sandboxes, and how often a repair failed
        self._tree = tree
        self._journal = journal
        self.checkpoint = checkpoint

    def use(self, layers: Sequence[Layer]) -> None:
        """Let these layers hold from now on; whatever is new among them has adopted all boxes."""
        self.layers = self.boxes.layers = tuple(layers)

    def box(self, record: Record) -> Box:
        """Return the cgroup of a sandbox."""
        return self._tree.box(record.name)

    def owned(self, name: str, uid: int) -> Record:
        """Return a sandbox of this user; raise Refusal where there is none."""
        record = self.records.get(name)
        if record is None or uid not in {record.uid, 0}:
            # One answer for both: whether a stranger's sandbox exists is nobody's business.
            raise Refusal("unknown_sandbox", "no such sandbox of yours")
        return record

    def confine(self, peer: Peer, wanted: Confine, addresses: tuple[Endpoint, ...]) -> Record:
        """Move the peer into a new sandbox; raise Refusal and leave nothing where it fails."""
        self._check_room(peer.uid)
        try:
            box = self.boxes.take()
        except LayerFailed as error:
            raise Refusal("layer_failed", str(error)) from error
        try:
            return self._fill_and_move(box, peer, wanted, addresses)
        except (LayerFailed, JournalFailed, OSError) as error:
            self._undo(box)
            raise Refusal("confine_failed", str(error)) from error
        except BaseException:
            self._undo(box)
            raise

    def change(
        self,
        record: Record,
        endpoints: Iterable[Endpoint],
        names: Iterable[NameRule],
        addresses: Iterable[Endpoint],
    ) -> int:
        """Give a sandbox another policy; return how many connections that ended."""
        wanted = record.with_policy(endpoints, names, addresses)
        if wanted == record:
            return 0
        if wanted.weight > record.weight:  # what takes away is always taken
            self._check_size(wanted)
        try:
            self._journal.save(wanted)
        except JournalFailed as error:
            with contextlib.suppress(JournalFailed):  # it may have its name, and not be durable
                self._journal.save(record)
            raise Refusal("journal_failed", str(error)) from error
        self.checkpoint("change written")
        try:
            self._apply(wanted)
        except LayerFailed as error:
            self._go_back(record)
            raise Refusal("apply_failed", str(error)) from error
        self.records[record.name] = wanted
        self.checkpoint("change applied")
        return self._end_uncovered(wanted)

    def release(self, record: Record) -> bool:
        """Give a sandbox up, to be removed when nobody is inside; tell whether that is so now."""
        marked = replace(record, released=True)
        self._journal.save(marked)
        self.records[record.name] = marked
        return not self.is_populated(record)

    def is_populated(self, record: Record) -> bool:
        """Tell whether the sandbox is there and a process lives in it."""
        box = self.box(record)
        return box.is_still(record.identity) and box.populated()

    def empty(self, most: int | None = None) -> list[Record]:
        """Return sandboxes that nobody is in, so many at most."""
        return [r for r in self.records.values() if not self.is_populated(r)][:most]

    def collect(self, empty: Sequence[Record]) -> None:
        """Remove sandboxes that nobody is in, all at once: rules, cgroups, then records."""
        self.boxes.discard([self.box(record) for record in empty])
        self.checkpoint("boxes removed")
        for record in empty:
            self._journal.forget(record.name)
            self.records.pop(record.name, None)
            self.suspended.pop(record.name, None)
            del self.refusals[record.name]

    def policies(self) -> list[tuple[Box, tuple[Endpoint, ...]]]:
        """Return what every box should be open for: the stock is open for nothing.

        A box that is gone, or was made again, is none of ours: it is collected.
        """
        held = [(self.box(record), record) for record in self.records.values()]
        open_for = [(box, each.policy()) for box, each in held if box.is_still(each.identity)]
        return open_for + [(box, ()) for box in self.boxes.stock()]

    def _check_room(self, uid: int) -> None:
        account = self.account_of(uid)
        mine = sum(self.account_of(each.uid) == account for each in self.records.values())
        if mine >= MAX_PER_USER or len(self.records) >= MAX_SANDBOXES:
            raise Refusal("too_many_sandboxes", f"you have {mine} of {MAX_PER_USER} sandboxes")

    def _check_size(self, record: Record) -> None:
        """Raise Refusal where a policy, with what its names stand for, is more than can be kept."""
        count = len(record.endpoints) + len(record.addresses)
        if count > MAX_POLICY:
            text = f"{count} endpoints with what the names stand for: at most {MAX_POLICY}"
            raise Refusal("too_many_endpoints", text)
        others = Counter[int]()
        for each in self.records.values():
            if each.name != record.name:
                others[self.account_of(each.uid)] += each.weight
        if not crowd.has_room(record.weight, self.account_of(record.uid), others):
            text = "your sandboxes, or those of all, hold too many endpoints together"
            raise Refusal("too_many_endpoints", text)

    def _fill_and_move(
        self, box: Box, peer: Peer, wanted: Confine, addresses: tuple[Endpoint, ...]
    ) -> Record:
        record = Record(
            *(box.name, box.identity(), peer.uid, wanted.subject, wanted.session),
            *(wanted.endpoints, wanted.names, addresses),
            since=int(time.time()),
            refresh=wanted.refresh,
        )
        self._check_size(record)
        self._journal.save(record)
        self.checkpoint("record written")
        self._apply(record)
        self.checkpoint("policy applied")
        self._move(box, peer)
        self.checkpoint("peer moved")
        self.records[record.name] = record
        return record

    def _move(self, box: Box, peer: Peer) -> None:
        """Move the peer, and look again: it may have ended, or become another's program, between.

        What runs with the rights of no other user before and after had none in between.
        """
        peer.check()
        home = self._tree.at(peer.cgroup())
        self._check_programs(home)
        peer.check_rights(for_good=self.rights_for_good)
        box.move(peer.pid)
        try:
            peer.check_rights(for_good=self.rights_for_good)
        except PeerRefused as error:
            # Of an ended peer the number may be somebody's who came from nobody knows where.
            self._put_back(box, self._tree.root() if error.code == "peer_gone" else home)
            raise

    def _check_programs(self, home: Box) -> None:
        """Raise Refusal where others hold a process and would not hold it in a sandbox."""
        left = [
            each
            for each in self.left_behind(home.path, self._tree.path)
            if each not in self.may_leave
        ]
        if left:
            text = f"programs of others ({', '.join(left)}) hold this process where it is"
            raise Refusal("leaves_programs", f"{text}, and would not in a sandbox: --may-leave")

    def _apply(self, record: Record) -> None:
        box, policy = self.box(record), record.policy()
        for layer in self.layers:
            layer.apply(box, policy)
            self.checkpoint(f"{layer.name} applied")

    def _go_back(self, record: Record) -> None:
        try:
            self._journal.save(record)
            self._apply(record)
        except (LayerFailed, JournalFailed):
            self.suspend(record)

    def suspend(self, record: Record) -> None:
        """Freeze a sandbox that cannot be held, until it is repaired or ended."""
        self.suspended.setdefault(record.name, 0)
        with contextlib.suppress(FileNotFoundError):  # nobody is in a box that is gone
            self.box(record).freeze()

    def still_used(self, record: Record, addresses: Iterable[Endpoint]) -> tuple[Endpoint, ...]:
        """Return what a name stood for, stands for no more, and a connection still goes to."""
        leaving = set(record.addresses) - set(addresses)
        if not leaving:
            return ()
        used = {item.remote for item in self._open_sockets(record) if item.is_connected}
        return tuple(sorted((e for e in leaving if e.network.packed in used), key=repr))

    def _end_uncovered(self, record: Record) -> int:
        found, cover = self._open_sockets(record), Cover(record.policy())
        return sum(sockets.destroy(item) for item in uncovered(found, cover))

    def _open_sockets(self, record: Record) -> list[sockets.Open]:
        return [
            item
            for identity in self.box(record).identities()
            for protocol in ("tcp", "udp")
            for item in sockets.of_cgroup(identity, protocol)
        ]

    def _undo(self, box: Box) -> None:
        self.records.pop(box.name, None)
        try:
            self.boxes.discard([box])
            self._journal.forget(box.name)
        except (LayerFailed, JournalFailed):
            return  # the box is closed and empty: the next start collects it

    def _put_back(self, box: Box, home: Box) -> None:
        for pid in box.members():
            try:
                home.move(pid)
            except OSError:  # it is gone, or its owner's
                self._tree.root().move(pid)


def uncovered(items: Sequence[sockets.Open], cover: Cover) -> list[sockets.Open]:
    """Return the connections that a policy does not cover and that are not the sandbox's own."""
    listening = {item.local_port for item in items if item.is_listening}
    ends = {(item.local, item.local_port, item.remote, item.remote_port) for item in items}

    def is_own(item: sockets.Open) -> bool:
        mirrored = (item.remote, item.remote_port, item.local, item.local_port) in ends
        return item.is_loopback and (mirrored or item.local_port in listening)

    return [
        item
        for item in items
        if item.is_connected
        and not cover.covers(item.remote, item.remote_port, item.protocol)
        and not is_own(item)
    ]
