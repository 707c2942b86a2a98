"""The closed table of calls: what a peer may ask for, who may ask, and why it is safe."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from . import crowd, protocol
from .journal import JournalFailed
from .keeper import Keeper, Refusal
from .layers import LayerFailed
from .peers import PeerRefused, identity_method
from .protocol import (
    Applied,
    Confine,
    Events,
    LayerState,
    List,
    Listed,
    Listening,
    Listing,
    Refused,
    Release,
    Released,
    Report,
    Revoke,
    Show,
    Shown,
    Status,
    Update,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from .names import NameBook
    from .peers import Peer
    from .records import Record
    from .resolving import Resolving
    from .upkeep import Upkeep

    Answered = Callable[[protocol.Reply], None]


# What the operator should hear of: something on this host does not work.
FAILURES: Final = frozenset(
    {"apply_failed", "confine_failed", "failed", "journal_failed", "layer_failed"}
)
MAX_LISTED_FAILURES: Final = 8  # of each sandbox: a list is long as it is


class Then(Enum):
    """What a connection is good for after a call."""

    MORE = "more calls"
    NOTHING = "nothing: the helper hangs up"
    EVENTS = "events only"


@dataclass(frozen=True, slots=True)
class Call:
    """One row of the table."""

    answer: Callable[[Desk, Peer, Any, Answered], None]
    then: Then
    who: str
    safe_because: str
    by_peer_alone: bool = False  # not by a child that inherited the connection


@dataclass(frozen=True, slots=True)
class Desk:
    """Answers calls: checks who asks, asks for names, lets the keeper act."""

    instance: str
    keeper: Keeper
    upkeep: Upkeep
    book: NameBook
    resolving: Resolving
    reasons: Mapping[str, str]  # each layer that exists → why it does not work here, or nothing
    listeners: Callable[[int], int]  # how many hear what the sandboxes of a user are refused
    say: Callable[[str], None]  # to the operator
    waiting: Counter[int] = field(default_factory=Counter)  # endpoints that wait, by account

    def answer(self, peer: Peer, request: protocol.Request, answered: Answered) -> None:
        """Answer one call, now or when its names are known; a refusal is an answer."""

        def told(reply: protocol.Reply) -> None:
            if isinstance(reply, Refused) and reply.code in FAILURES:
                self.say(f"{request.CALL} of user {peer.uid}: {reply.code}: {reply.text}")
            answered(reply)

        _answer_or_refuse(lambda: self._checked(peer, request, told), told)

    def _checked(self, peer: Peer, request: protocol.Request, answered: Answered) -> None:
        peer.check()  # before every call: a peer may have been confined since the last one
        CALLS[type(request)].answer(self, peer, request, answered)

    def with_names(
        self,
        uid: int,
        request: Confine | Update,
        refresh: int | None,
        answered: Answered,
        act: Callable[[], None],
    ) -> None:
        """Act when every name was asked for; names that fail are reported, not waited for."""
        names, weight = self.book.unknown(request.names, refresh), len(request.endpoints)
        account = self.keeper.account_of(uid)
        if names and not crowd.may_wait_for_names(weight, account, self.waiting):
            raise Refusal("busy", "too much waits for names: try again later")
        self.waiting[account] += weight
        self.book.expect(account, request.names)

        def go_on() -> None:
            self.waiting[account] -= weight
            self.book.settle(account, request.names)
            act()

        self.resolving.ask(account, names, lambda: _answer_or_refuse(go_on, answered))

    def applied(self, record: Record, destroyed: int) -> Applied:
        """Say what holds a sandbox."""
        active = tuple(layer.name for layer in self.keeper.layers)
        missing = tuple(reason for reason in self.reasons.values() if reason)
        failed = self.book.failures(record.names, record.endpoints)
        return Applied(record.name, active, missing, failed, destroyed)


def _answer_or_refuse(act: Callable[[], None], answered: Answered) -> None:
    try:
        act()
    except (Refusal, PeerRefused) as error:
        answered(Refused(error.code, _printable(error)))
    except (LayerFailed, JournalFailed, OSError) as error:
        answered(Refused("failed", _printable(error)))


def _printable(error: Exception) -> str:
    return "".join(filter(str.isprintable, str(error)))[:400]


def _confine(desk: Desk, peer: Peer, request: Confine, answered: Answered) -> None:
    missing = [reason for reason in desk.reasons.values() if reason]
    held = len(desk.keeper.layers)
    if (request.require == "full" and missing) or (request.require != "none" and not held):
        raise Refusal("not_enforceable", "; ".join(missing) or "no layer works on this host")

    def act() -> None:
        addresses = desk.book.addresses(request.names)
        record = desk.keeper.confine(peer, request, addresses)
        answered(desk.applied(record, 0))

    desk.with_names(peer.uid, request, request.refresh, answered, act)


def _update(desk: Desk, peer: Peer, request: Update, answered: Answered) -> None:
    found = desk.keeper.owned(request.sandbox, peer.uid)

    def act() -> None:
        record = replace(desk.keeper.owned(request.sandbox, peer.uid), follows=request.follows)
        addresses = desk.book.standing(record, request.names)
        if set(record.names) <= set(request.names):
            addresses += desk.keeper.still_used(record, addresses)
        ended = desk.keeper.change(record, request.endpoints, request.names, addresses)
        answered(desk.applied(desk.keeper.records[record.name], ended))

    desk.with_names(peer.uid, request, found.refresh, answered, act)


def _revoke(desk: Desk, peer: Peer, request: Revoke, answered: Answered) -> None:
    record = desk.keeper.owned(request.sandbox, peer.uid)
    gone_names = set(request.names)
    gone = set(request.endpoints)
    strange = (gone - set(record.endpoints)) or (gone_names - set(record.names))
    if strange:
        raise Refusal("not_granted", f"{len(strange)} of these were never granted as such")
    endpoints = [endpoint for endpoint in record.endpoints if endpoint not in gone]
    names = [rule for rule in record.names if rule not in gone_names]
    addresses = desk.book.standing(record, names)
    ended = desk.keeper.change(record, endpoints, names, addresses)
    answered(desk.applied(desk.keeper.records[record.name], ended))


def _release(desk: Desk, peer: Peer, request: Release, answered: Answered) -> None:
    record = desk.keeper.owned(request.sandbox, peer.uid)
    answered(Released(record.name, empty=desk.keeper.release(record)))


def _list(desk: Desk, peer: Peer, request: List, answered: Answered) -> None:
    mine = (
        _listing(desk, record)
        for name, record in sorted(desk.keeper.records.items())
        if peer.uid in {record.uid, 0} and name > (request.after or "")
    )
    # One that was released is there for as long as somebody is inside, and can be changed.
    answered(_page(each for each in mine if each.populated or not _is_released(desk, each)))


def _is_released(desk: Desk, listing: Listing) -> bool:
    return desk.keeper.records[listing.sandbox].released


def _page(listings: Iterable[Listing]) -> Listed:
    """Return as many as go into one answer."""
    page, size = list[Listing](), 0
    for each in listings:
        page.append(each)
        size += len(protocol.dump(Listed((each,))))
        if size > protocol.PAGE and protocol.goes_on(Listed(tuple(page))):
            break
    return Listed(tuple(page))


def _listing(desk: Desk, record: Record) -> Listing:
    keeper = desk.keeper
    wrong = (each.text for each in desk.book.complaints(record.names, record.endpoints).values())
    return Listing(
        *(record.name, record.uid, record.subject, record.session, record.since),
        *(keeper.refusals[record.name], len(record.endpoints)),
        tuple(rule.name for rule in record.names),
        tuple(layer.name for layer in keeper.layers),
        keeper.is_populated(record),
        "frozen" if record.name in keeper.suspended else "held",
        record.follows,
        tuple(wrong)[:MAX_LISTED_FAILURES],
    )


def _show(desk: Desk, peer: Peer, request: Show, answered: Answered) -> None:
    record = desk.keeper.owned(request.sandbox, peer.uid)
    asked = record.asked()
    answered(Shown(record.name, asked.endpoints, asked.names))


def _status(desk: Desk, peer: Peer, _request: Status, answered: Answered) -> None:
    layers = tuple(LayerState(name, reason) for name, reason in desk.reasons.items())
    answered(
        Report(
            *(protocol.VERSION, desk.instance, layers, identity_method()),
            *(len(desk.keeper.records), desk.resolving.state, desk.upkeep.repairs),
            desk.listeners(peer.uid),
        )
    )


def _events(_desk: Desk, _peer: Peer, _request: Events, answered: Answered) -> None:
    answered(Listening())


_ANYBODY: Final = "whoever may open the socket, from outside every sandbox"
_PEER: Final = "who opened the connection, as the user that opened it, from outside every sandbox"
_OWNER: Final = "the user who made the sandbox, or root, from outside every sandbox"

CALLS: Final[Mapping[type[protocol.Request], Call]] = {
    Confine: Call(
        *(_confine, Then.NOTHING, _PEER, "moves the peer alone, into less than it had"),
        by_peer_alone=True,
    ),
    Update: Call(_update, Then.MORE, _OWNER, "the owner could start the command without a sandbox"),
    Revoke: Call(_revoke, Then.MORE, _OWNER, "only takes away"),
    Release: Call(_release, Then.MORE, _OWNER, "removed only when nobody is inside"),
    List: Call(_list, Then.MORE, _ANYBODY, "shows the peer's own, to root all"),
    Show: Call(_show, Then.MORE, _OWNER, "tells the owner what the owner asked for"),
    Status: Call(_status, Then.MORE, _ANYBODY, "tells about the host what it tells anyway"),
    Events: Call(_events, Then.EVENTS, _ANYBODY, "sends what the peer's own sandboxes tried"),
}
