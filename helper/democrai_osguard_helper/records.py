"""What the helper wants to be true of one sandbox: the value that the journal keeps."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from . import fields as read
from .endpoints import PROTOCOLS, Endpoint, NameRule, Network
from .protocol import Subject

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

VERSION: Final = 3
MAX_POLICY: Final = 2 * read.MAX_ENDPOINTS  # endpoints, and what the names stand for
_EARLIER: Final = 2  # without what came since: sandboxes outlive an upgrade


@dataclass(frozen=True, slots=True)
class Asked:
    """What a sandbox was made with: decisions that came later are laid over this."""

    endpoints: tuple[Endpoint, ...]
    names: tuple[NameRule, ...]


@dataclass(frozen=True, slots=True)
class Record:
    """A sandbox: whose it is, what it may reach, and which cgroup it is."""

    name: str
    identity: int  # of the cgroup: a folder of the same name made later is another one
    uid: int
    subject: Subject
    session: str | None
    endpoints: tuple[Endpoint, ...]
    names: tuple[NameRule, ...]
    addresses: tuple[Endpoint, ...]  # what the names stand for now, resolvers included
    since: int  # seconds of the epoch
    released: bool = False
    changed_from: Asked | None = None  # None while the policy is still the first one
    refresh: int | None = None  # seconds until its names are looked up again
    follows: str | None = None  # whose decisions changed it

    def asked(self) -> Asked:
        """Return what the sandbox was made with."""
        return self.changed_from or Asked(self.endpoints, self.names)

    def policy(self) -> tuple[Endpoint, ...]:
        """Return everything that is open."""
        return (*self.endpoints, *self.addresses)

    @property
    def weight(self) -> int:
        """How much of the daemon it takes, in endpoints."""
        return len(self.endpoints) + len(self.addresses) + len(self.names)

    def with_policy(
        self,
        endpoints: Iterable[Endpoint],
        names: Iterable[NameRule],
        addresses: Iterable[Endpoint],
    ) -> Record:
        """Return the record with another policy; what it was made with is kept."""
        changed = replace(
            self, endpoints=tuple(endpoints), names=tuple(names), addresses=tuple(addresses)
        )
        first = self.asked()
        if first == Asked(changed.endpoints, changed.names):
            return replace(changed, changed_from=None, follows=None)
        return replace(changed, changed_from=first)


def dump(record: Record) -> bytes:
    """Write a record as JSON."""
    document = {
        "version": VERSION,
        "name": record.name,
        "identity": record.identity,
        "uid": record.uid,
        "subject": {"type": record.subject.type, "name": record.subject.name},
        "session": record.session,
        "endpoints": [_plain(endpoint) for endpoint in record.endpoints],
        "names": [_plain_name(rule) for rule in record.names],
        "addresses": [_plain(endpoint) for endpoint in record.addresses],
        "since": record.since,
        "released": record.released,
        "changed_from": _plain_asked(record.changed_from),
        "refresh": record.refresh,
        "follows": record.follows,
    }
    return json.dumps(document, separators=(",", ":")).encode()


_PARSERS: Final[Mapping[str, read.Parser]] = {
    "version": read.count,
    "name": read.sandbox,
    "identity": read.count,
    "uid": read.count,
    "subject": read.nested(Subject, {"type": read.word, "name": read.line}),
    "session": read.optional(read.line),
    "endpoints": read.endpoints,
    "names": read.names,
    "addresses": read.addresses,
    "since": read.count,
    "released": read.truth,
    "changed_from": read.optional(
        read.nested(Asked, {"endpoints": read.endpoints, "names": read.names})
    ),
    "refresh": read.optional(read.refresh),
    "follows": read.optional(read.word),
}


def parse(payload: bytes) -> Record:
    """Read a record; raise ProtocolViolation when it is damaged or of another version."""
    document = read.document(payload)
    if document.get("version") == _EARLIER:
        document |= {"version": VERSION, "refresh": None, "follows": None}
    found = read.member_parsers(document, _PARSERS, at="record")
    if found.pop("version") != VERSION:
        raise read.ProtocolViolation("record: of another version")
    return Record(**found)


def _plain(endpoint: Endpoint) -> dict[str, object]:
    network, port, protocol = endpoint
    return {"network": str(network), "port": port, "protocol": protocol}


def _plain_asked(asked: Asked | None) -> dict[str, object] | None:
    if asked is None:
        return None
    return {
        "endpoints": [_plain(endpoint) for endpoint in asked.endpoints],
        "names": [_plain_name(rule) for rule in asked.names],
    }


def _plain_name(rule: NameRule) -> dict[str, object]:
    within = [str(network) for network in rule.within]
    return {"name": rule.name, "port": rule.port, "protocol": rule.protocol, "within": within}


class Cover:
    """Answers whether a policy covers an address and a port; made once, asked often."""

    def __init__(self, endpoints: Iterable[Endpoint]) -> None:
        # Each protocol and port → each length of a prefix → the networks: whoever names
        # thousands of them pays for the lengths only.
        self._networks: dict[tuple[str, int | None], dict[int, set[Network]]] = {}
        for network, port, protocol in endpoints:
            for word in (protocol,) if protocol else PROTOCOLS:
                lengths = self._networks.setdefault((word, port), {})
                lengths.setdefault(network.prefix, set()).add(network)

    def covers(self, packed: bytes, port: int | None, protocol: str) -> bool:
        """Tell whether a packet there would be allowed; without a port, to every port."""
        return any(
            Network(packed, 8 * len(packed)).shortened(length) in networks
            for key in {(protocol, port), (protocol, None)}
            for length, networks in self._networks.get(key, {}).items()
            if length <= 8 * len(packed)
        )
