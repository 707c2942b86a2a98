"""What a peer and the helper say to each other, as frozen values. Pure; `protocol` reads them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from .endpoints import Endpoint, NameRule


@dataclass(frozen=True, slots=True)
class Subject:
    """For whom a sandbox was made, as its owner calls it: a label, never a right."""

    type: str
    name: str


@dataclass(frozen=True, slots=True)
class Confine:
    """Move me, the peer, into a new sandbox that reaches these endpoints only."""

    CALL: ClassVar[str] = "confine"
    subject: Subject
    session: str | None
    endpoints: tuple[Endpoint, ...]
    names: tuple[NameRule, ...]
    require: str
    refresh: int | None = None  # seconds until its names are looked up again


@dataclass(frozen=True, slots=True)
class Update:
    """Let this become the whole policy of a sandbox of mine."""

    CALL: ClassVar[str] = "update"
    sandbox: str
    endpoints: tuple[Endpoint, ...]
    names: tuple[NameRule, ...]
    follows: str | None = None  # whose decisions these are: a label, never a right


@dataclass(frozen=True, slots=True)
class Revoke:
    """Take these away from a sandbox of mine, and end the connections that use them."""

    CALL: ClassVar[str] = "revoke"
    sandbox: str
    endpoints: tuple[Endpoint, ...]
    names: tuple[NameRule, ...]


@dataclass(frozen=True, slots=True)
class Release:
    """Remove a sandbox of mine, now or as soon as nobody is left inside."""

    CALL: ClassVar[str] = "release"
    sandbox: str


@dataclass(frozen=True, slots=True)
class List:
    """Show the sandboxes that I own, in the order of their names."""

    CALL: ClassVar[str] = "list"
    after: str | None = None  # go on after this one, where an answer was not the whole


@dataclass(frozen=True, slots=True)
class Show:
    """Tell what a sandbox of mine was made with."""

    CALL: ClassVar[str] = "show"
    sandbox: str


@dataclass(frozen=True, slots=True)
class Status:
    """Say what this host can enforce."""

    CALL: ClassVar[str] = "status"


@dataclass(frozen=True, slots=True)
class Events:
    """Send me what my sandboxes were refused, from now on."""

    CALL: ClassVar[str] = "events"


@dataclass(frozen=True, slots=True)
class Applied:
    """A policy stands: which layers hold it, what is missing, which names did not resolve."""

    CALL: ClassVar[str] = "applied"
    sandbox: str
    layers: tuple[str, ...]
    missing: tuple[str, ...]
    failed_names: tuple[str, ...]
    destroyed: int  # connections that the change ended


@dataclass(frozen=True, slots=True)
class Released:
    """The sandbox goes as soon as nobody is inside, which may be so already."""

    CALL: ClassVar[str] = "released"
    sandbox: str
    empty: bool


@dataclass(frozen=True, slots=True)
class Listing:
    """One sandbox as its owner sees it."""

    sandbox: str
    uid: int
    subject: Subject
    session: str | None
    since: int  # seconds of the epoch
    refusals: int  # that the helper has seen since it was started
    endpoints: int
    names: tuple[str, ...]
    layers: tuple[str, ...]
    populated: bool
    state: str  # "held", "frozen"
    follows: str | None  # whose decisions changed it
    failed_names: tuple[str, ...] = ()  # what is wrong with its names, the first few


@dataclass(frozen=True, slots=True)
class Listed:
    """The sandboxes of the peer."""

    CALL: ClassVar[str] = "listed"
    sandboxes: tuple[Listing, ...]


@dataclass(frozen=True, slots=True)
class Shown:
    """What a sandbox was made with, whatever was changed since."""

    CALL: ClassVar[str] = "shown"
    sandbox: str
    endpoints: tuple[Endpoint, ...]
    names: tuple[NameRule, ...]


@dataclass(frozen=True, slots=True)
class LayerState:
    """One layer of this host: why it does not work, or an empty reason."""

    layer: str
    reason: str


@dataclass(frozen=True, slots=True)
class Report:
    """What this host can enforce and what is running."""

    CALL: ClassVar[str] = "report"
    version: int
    instance: str
    layers: tuple[LayerState, ...]
    peer_identity: str
    sandboxes: int
    resolver: str
    repairs: int
    listeners: int  # to events, of the peer's own user


@dataclass(frozen=True, slots=True)
class Listening:
    """Events follow on this connection, and nothing else."""

    CALL: ClassVar[str] = "listening"


@dataclass(frozen=True, slots=True)
class Denial:
    """A connection that the kernel refused: `name` is what the address was looked up by."""

    CALL: ClassVar[str] = "denial"
    sandbox: str
    uid: int  # whose sandbox it is: root hears of all
    subject: Subject
    session: str | None
    address: str
    port: int
    protocol: str
    name: str | None
    count: int


@dataclass(frozen=True, slots=True)
class Notice:
    """Something that a person should know: drift, a repair, a name that failed, lost events."""

    CALL: ClassVar[str] = "notice"
    sandbox: str | None
    code: str
    text: str


@dataclass(frozen=True, slots=True)
class Refused:
    """The call was understood and not done; `code` is stable."""

    CALL: ClassVar[str] = "refused"
    code: str
    text: str


Request = Confine | Update | Revoke | Release | List | Show | Status | Events
Reply = Applied | Released | Listed | Shown | Report | Listening | Denial | Notice | Refused
