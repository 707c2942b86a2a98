"""Addresses that a name must not turn to by itself: private, link-local, metadata. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from .endpoints import Network, parse_network

if TYPE_CHECKING:
    from collections.abc import Mapping

# Each range, and what it is.
INSIDE: Final[Mapping[str, str]] = {
    "0.0.0.0/8": "this host",
    "10.0.0.0/8": "private",
    "100.64.0.0/10": "shared by carriers; also metadata services",
    "127.0.0.0/8": "loopback",
    "168.63.129.16/32": "services of the machine's own host, metadata among them",
    "169.254.0.0/16": "link-local: metadata services",
    "172.16.0.0/12": "private",
    "192.0.0.0/24": "protocol assignments; also metadata services",
    "192.168.0.0/16": "private",
    "198.18.0.0/15": "benchmarks",
    "224.0.0.0/4": "multicast",
    "240.0.0.0/4": "reserved, broadcast",
    "::/96": "unspecified, loopback, IPv4-compatible",
    "64:ff9b:1::/48": "translated IPv4, private",
    "fc00::/7": "private: metadata services",
    "fe80::/10": "link-local",
    "fec0::/10": "site-local",
    "ff00::/8": "multicast",
}
# IPv6 that carries an IPv4 address, and where in it: translated, tunnelled.
_CARRIERS: Final = ((parse_network("64:ff9b::/96"), 12), (parse_network("2002::/16"), 2))
_INSIDE: Final = tuple((parse_network(text), what) for text, what in INSIDE.items())


def inside(address: Network) -> str:
    """Say what an inner address is; an empty text for one of the open network."""
    for carrier, place in _CARRIERS:
        if carrier.covers(address):
            return inside(Network(address.packed[place : place + 4], 32))
    return next((what for network, what in _INSIDE if network.covers(address)), "")
