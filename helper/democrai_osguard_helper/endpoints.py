"""Where a sandbox may connect to: networks and names, each with an optional port and protocol.

Pure: text in, frozen values out. Every form that two readers could read differently is refused.
Networks and endpoints are named tuples: a policy holds thousands, and these are cheap to make.
"""

from __future__ import annotations

import re
import socket
from dataclasses import dataclass
from typing import Final, NamedTuple

PROTOCOLS: Final = ("tcp", "udp")
MAX_PORT: Final = 65535
MAX_NAME: Final = 253
_MAPPED: Final = bytes(10) + b"\xff\xff"
_V4_BITS: Final = 32
_V6_BITS: Final = 128
_MAPPED_BITS: Final = _V6_BITS - _V4_BITS
_PREFIX: Final = re.compile(r"0|[1-9][0-9]{0,2}")
_LABEL: Final = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)")


class EndpointError(ValueError):
    """The text is no endpoint in normal form."""


class Network(NamedTuple):
    """An address or a range: packed bytes of one family and the length of its prefix."""

    packed: bytes
    prefix: int

    @property
    def version(self) -> int:
        """4 or 6."""
        return 4 if len(self.packed) == _V4_BITS // 8 else 6

    @property
    def is_address(self) -> bool:
        """Tell whether it is one address."""
        return self.prefix == len(self.packed) * 8

    def __str__(self) -> str:
        family = socket.AF_INET if self.version == 4 else socket.AF_INET6  # noqa: PLR2004
        text = socket.inet_ntop(family, self.packed)
        return text if self.is_address else f"{text}/{self.prefix}"

    def covers(self, other: Network) -> bool:
        """Tell whether every address of the other network is one of this one's."""
        if len(self.packed) != len(other.packed) or self.prefix > other.prefix:
            return False
        return _masked(other.packed, self.prefix) == self.packed

    def shortened(self, prefix: int) -> Network:
        """Return the network of that length that this one is in."""
        return Network(_masked(self.packed, prefix), prefix)


class Endpoint(NamedTuple):
    """A network; no port means every port, no protocol means TCP and UDP."""

    network: Network
    port: int | None = None
    protocol: str | None = None


@dataclass(frozen=True, slots=True)
class NameRule:
    """A host name, or `*.suffix`; `within` lists the private ranges that it may turn to."""

    name: str
    port: int | None = None
    protocol: str | None = None
    within: tuple[Network, ...] = ()

    @property
    def is_wildcard(self) -> bool:
        """Tell whether the rule speaks of every name below a suffix."""
        return self.name.startswith("*.")


def parse_network(text: str) -> Network:
    """Read an address or a CIDR; IPv4-mapped IPv6 becomes the IPv4 that the kernel would dial."""
    address, slash, prefix = text.partition("/")
    packed = _packed(address, text)
    bits = len(packed) * 8
    if slash and (not _PREFIX.fullmatch(prefix) or int(prefix) > bits):
        raise EndpointError(f"{text!r}: the prefix length must be 0 to {bits}")
    length = int(prefix) if slash else bits
    if slash and length < bits and _masked(packed, length) != packed:
        raise EndpointError(f"{text!r}: bits are set to the right of the prefix")
    if packed.startswith(_MAPPED) and bits == _V6_BITS and length >= _MAPPED_BITS:
        return Network(packed[12:], length - _MAPPED_BITS)
    return Network(packed, length)


def parse_name(text: str) -> str:
    """Check that a name is in normal form: lower case, IDNA-encoded, no trailing dot."""
    wildcard = text.startswith("*.")
    labels = (text[2:] if wildcard else text).split(".")
    if len(text) > MAX_NAME or not all(map(_LABEL.fullmatch, labels)):
        raise EndpointError(f"{text[:80]!r}: not a host name in normal form")
    if labels[-1].isdigit() or labels[-1].startswith("0x"):
        raise EndpointError(f"{text!r}: a resolver would read this as an address")
    if wildcard and len(labels) < 2:  # noqa: PLR2004 - a star needs two labels after it
        raise EndpointError(f"{text!r}: a wildcard needs two labels after the star")
    return text


def _packed(address: str, text: str) -> bytes:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        return socket.inet_pton(family, address)
    except (OSError, ValueError) as error:  # ValueError: an embedded NUL, a lone surrogate
        raise EndpointError(f"{text[:80]!r}: not an IP address or CIDR") from error


def _masked(packed: bytes, prefix: int) -> bytes:
    rest = len(packed) * 8 - prefix
    return (int.from_bytes(packed, "big") >> rest << rest).to_bytes(len(packed), "big")
