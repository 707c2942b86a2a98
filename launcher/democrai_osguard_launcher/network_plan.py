"""What holds the network rules: the helper or the broker by address, else Landlock by port. Pure.

One of them: the helper where it can be reached, which costs the command nothing, and otherwise the
broker.
"""

# ruff: noqa: PLC0415 - what most launches do not need is imported where it is needed

from __future__ import annotations

from . import landlock
from .record import Record
from .rules import NETWORK, Rule

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .endpoints import Endpoint

_ABI_TCP = 4
_DNS = 53


class PortRights(Record):
    """Landlock rights for one port, whatever the address."""

    port: int
    rights: int


class NetworkPlan:
    """The network rules together: Landlock holds ports for the whole command, not for a rule."""

    def __init__(
        self, rules: Sequence[Rule], abi: int, *, helper: bool, broker: bool = False
    ) -> None:
        self.rules = tuple(rule for rule in rules if rule.resource_type == NETWORK)
        self.endpoints = tuple(dict.fromkeys(_endpoints(self.rules)))
        self.has_names = any(endpoint.is_name for endpoint in self.endpoints)
        self.has_suffixes = any(endpoint.host.startswith("*.") for endpoint in self.endpoints)
        self.by_port = all(endpoint.port for endpoint in self.endpoints)
        self.by_address = helper and bool(self.rules)
        self.by_broker = broker and not helper and bool(self.rules)
        self._holder = "the helper" if self.by_address else "the broker"
        self._holds_ports = abi >= _ABI_TCP and self.by_port

    def is_exact(self, rule: Rule) -> bool:
        """Tell whether what is held is what the rule says: a host and a port, and no more."""
        return self.by_address and _is_plain(rule) and not _is_suffix(rule)

    def is_brokered(self, rule: Rule) -> bool:
        """Tell whether the broker completes what the rule says, and no more."""
        return self.by_broker and _is_plain(rule)

    def held_by(self, rule: Rule) -> str:
        """Say what the kernel knows of this rule."""
        if self.is_exact(rule) or self.is_brokered(rule):
            return f"{self._holder}, by address and port"
        if self.by_address and _is_suffix(rule):
            return "the helper opens name servers and no address: nobody can list the names below"
        if self.by_address or self.by_broker:
            return (
                f"{self._holder} holds address and port; direction, scheme and path are the guard's"
            )
        port = next(_endpoints((rule,))).port
        if self._holds_ports:
            return f"Landlock holds port {port} for TCP, nothing holds the address"
        return "nothing holds address or port"

    def notes(self) -> Iterator[str]:
        """Say which rules open less than they say."""
        suffixes = sorted({rule.target for rule in self.rules if _is_suffix(rule)})
        if self.by_address and suffixes:
            yield (
                f"names below {', '.join(suffixes)} stay closed until each is declared or approved"
                " by itself: the helper holds addresses, and cannot list such names"
            )

    def handled(self, able: int) -> int:
        """Leave out what rules cannot express: any port at all; and what the helper holds.

        Where the broker dials nothing is left out: the command itself dials nobody.

        Landlock's ports are for good. What is approved while the command runs must be able to
        open, and what is refused must be refused by the helper, which reports it.
        """
        if self.by_address:
            return able & ~(landlock.CONNECT_TCP | landlock.CONNECT_SEND_UDP | landlock.BIND_UDP)
        if self.endpoints and not self.by_port and not self.by_broker:
            return able & ~landlock.CONNECT_TCP
        return able

    def ports(self, able: int) -> Iterator[PortRights]:
        """Yield the ports of the rules, and of the resolver where a rule has a name."""
        if not able or self.by_address:
            return
        if self.by_broker:
            if able & landlock.BIND_UDP:
                yield PortRights(0, landlock.BIND_UDP)
            return
        if self.by_port:
            wanted = {endpoint.port for endpoint in self.endpoints if endpoint.port}
            for port in sorted(wanted | ({_DNS} if self.has_names else set())):
                yield PortRights(port, landlock.CONNECT_TCP)
        yield from self._datagram_ports(able)

    def _datagram_ports(self, able: int) -> Iterator[PortRights]:
        if self.has_names and able & landlock.CONNECT_SEND_UDP:
            yield PortRights(_DNS, landlock.CONNECT_SEND_UDP)
            yield PortRights(0, landlock.BIND_UDP)  # a datagram's own port is chosen by a bind


def _is_plain(rule: Rule) -> bool:
    return rule.operation == "connect" and "://" not in rule.target


def _is_suffix(rule: Rule) -> bool:
    return next(_endpoints((rule,))).host.startswith("*.")


def _endpoints(rules: Sequence[Rule]) -> Iterator[Endpoint]:
    if rules:
        from .endpoints import parse

        for rule in rules:
            yield parse(rule.target)
