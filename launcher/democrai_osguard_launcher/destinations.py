"""Where the network rules lead: addresses, names, and all names below a suffix. Pure.

A name that turns to a private, link-local or metadata address is refused there, unless a rule
names that address or its range: otherwise whoever answers for the name could open the operator's
own network.
"""

from __future__ import annotations

import ipaddress

from .endpoints import LOCALHOST

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    Network = ipaddress.IPv4Network | ipaddress.IPv6Network
    Port = int | None

# Ranges that a name must not turn to by itself. As the helper has them: a test compares the two.
INSIDE = (
    "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "168.63.129.16/32", "169.254.0.0/16",
    "172.16.0.0/12", "192.0.0.0/24", "192.168.0.0/16", "198.18.0.0/15", "224.0.0.0/4",
    "240.0.0.0/4", "::/96", "64:ff9b:1::/48", "fc00::/7", "fe80::/10", "fec0::/10", "ff00::/8",
)  # fmt: skip
# IPv6 that carries an IPv4 address, and where in it: translated, tunnelled.
CARRIERS = (("64:ff9b::/96", 12), ("2002::/16", 2))
_INSIDE = tuple(ipaddress.ip_network(text) for text in INSIDE)
_CARRIERS = tuple((ipaddress.ip_network(text), place) for text, place in CARRIERS)
_LOOPBACK = ipaddress.ip_network("127.0.0.0/8")


def is_inside(address: bytes) -> bool:
    """Tell whether the address belongs to this machine or to a network around it."""
    own = ipaddress.ip_address(address)
    for carrier, place in _CARRIERS:
        if own in carrier:
            return is_inside(address[place : place + 4])
    return any(own in network for network in _INSIDE)


def normal(name: str) -> str:
    """Return the one writing of a name."""
    text = name.lower().removesuffix(".")
    return text if text.isascii() else text.encode("idna").decode()


class Destinations:
    """The places of a policy: a host, and a port or every port."""

    def __init__(self, places: Iterable[tuple[str, Port]]) -> None:
        self._networks: list[tuple[Network, Port]] = []
        self._names: list[tuple[str, Port]] = []
        self._suffixes: list[tuple[str, Port]] = []
        for host, port in places:
            self._add(host, port)
        self.has_names = bool(self._names or self._suffixes)
        self.has_suffixes = bool(self._suffixes)

    def allows(self, address: bytes, port: int) -> bool:
        """Tell whether a rule names this address and port."""
        own = ipaddress.ip_address(address)
        return any(
            wanted in {None, port} and (own in network or (network.is_loopback and own.is_loopback))
            for network, wanted in self._networks
        )

    def names(self, port: int | None = None) -> Iterator[str]:
        """Yield the names that rules allow at this port, or at any."""
        yield from (name for name, wanted in self._names if port is None or wanted in {None, port})

    def allows_name(self, name: str, port: int | None = None) -> bool:
        """Tell whether a rule covers the name, at this port or at any."""
        return name in self.names(port) or any(
            name.endswith(suffix) and (port is None or wanted in {None, port})
            for suffix, wanted in self._suffixes
        )

    def _add(self, host: str, port: Port) -> None:
        if host == LOCALHOST:
            self._networks.append((_LOOPBACK, port))
        elif host.startswith("*."):
            self._suffixes.append(("." + normal(host[2:]), port))
        else:
            try:
                self._networks.append((ipaddress.ip_network(host, strict=False), port))
            except ValueError:
                self._names.append((normal(host), port))
