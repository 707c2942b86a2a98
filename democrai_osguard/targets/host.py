"""Hosts as they are compared: a name, a range of names (`*.suffix`), an address or a range.

Parsing is strict. What readers of URLs understand differently is an error, and an address in
any of its older spellings becomes the one that the kernel would dial.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address, IPv4Network, IPv6Address, IPv6Network

from democrai_osguard.errors import NetworkTargetMissing, TargetError

Network = IPv4Network | IPv6Network

LOCALHOST = "localhost"
LOOPBACK = (IPv4Network("127.0.0.0/8"), IPv6Network("::1/128"))
# Connecting to "any address" reaches this machine, so it is this machine.
_UNSPECIFIED = (IPv4Network("0.0.0.0/32"), IPv6Network("::/128"))
_MAPPED = IPv6Network("::ffff:0:0/96")

_NAME_LIMIT = 253
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?\Z")
_NUMBER = re.compile(r"(?:0x[0-9a-f]*|[0-9]+)\Z")
_ADDRESS_PART = re.compile(r"(?:0x[0-9a-f]{1,16}|0[0-7]{0,22}|[1-9][0-9]{0,19})\Z")
_QUAD = re.compile(r"(?:0|[1-9][0-9]{0,2})(?:\.(?:0|[1-9][0-9]{0,2})){3}\Z")
_WILDCARD_LABELS = 2


@dataclass(frozen=True, slots=True)
class Host:
    """A host in normal form. Exactly one of name, suffix and network is set."""

    name: str | None = None
    suffix: str | None = None  # for `*.suffix`: everything below it, never itself
    network: Network | None = None

    def __str__(self) -> str:
        if self.network is not None:
            single = self.network.prefixlen == self.network.max_prefixlen
            return str(self.network.network_address if single else self.network)
        return self.name if self.name is not None else f"*.{self.suffix}"

    @property
    def bracketed(self) -> str:
        """The host as it stands before a port."""
        return f"[{self}]" if self.network is not None and self.network.version != 4 else str(self)  # noqa: PLR2004 - the version of IP

    @property
    def is_range(self) -> bool:
        """Whether this is a CIDR range, which takes neither a scheme nor a port."""
        return self.network is not None and self.network.prefixlen < self.network.max_prefixlen

    def covers(self, other: Host) -> bool:
        """Tell whether every host that `other` stands for is one of these."""
        if self.name is not None:
            return self.name == other.name
        if self.suffix is not None:
            below = other.name if other.name is not None else f"*.{other.suffix}"
            return other.network is None and below.endswith(f".{self.suffix}")
        return self._reaches(other)

    def _reaches(self, other: Host) -> bool:
        if other.name == LOCALHOST:
            return any(_within(loopback, self.network) for loopback in LOOPBACK)
        return other.network is not None and _within(other.network, self.network)


def parse_host(text: str, value: object) -> Host:
    """Read a host without port; `value` is the whole target, for the message."""
    if not text:
        raise NetworkTargetMissing(value, "no host")
    if text.startswith("["):
        if not text.endswith("]"):
            raise TargetError(value, "a '[' without its ']'")
        return _host_of(IPv6Network(_ipv6(text[1:-1], value)))
    if "/" in text:
        return _parse_range(text, value)
    if ":" in text:
        return _host_of(IPv6Network(_ipv6(text, value)))
    if text.startswith("*."):
        return _parse_wildcard(text, value)
    return _parse_name(text, value)


def _within(inner: Network, outer: Network | None) -> bool:
    if isinstance(inner, IPv4Network):
        return isinstance(outer, IPv4Network) and inner.subnet_of(outer)
    return isinstance(outer, IPv6Network) and inner.subnet_of(outer)


def _host_of(network: Network) -> Host:
    """Return the host of an address or a range, under the one name that it is compared by."""
    if isinstance(network, IPv6Network) and network.subnet_of(_MAPPED):
        low = int(network.network_address) & 0xFFFFFFFF
        network = IPv4Network((low, network.prefixlen - 96))
    if any(_within(network, loopback) for loopback in (*LOOPBACK, *_UNSPECIFIED)):
        return Host(name=LOCALHOST)
    return Host(network=network)


def _parse_name(text: str, value: object) -> Host:
    name = _ascii_name(text, value)
    labels = name.split(".")
    if _NUMBER.match(labels[-1]):
        return _host_of(IPv4Network(_ipv4(name, value)))
    for label in labels:
        _check_label(label, value)
    if len(name) > _NAME_LIMIT:
        raise TargetError(value, f"the host name has more than {_NAME_LIMIT} characters")
    return Host(name=name)


def _parse_wildcard(text: str, value: object) -> Host:
    suffix = _parse_name(text[2:], value).name
    if suffix is None or suffix == LOCALHOST:
        raise TargetError(value, "a wildcard stands before a name, not before an address")
    if suffix.count(".") + 1 < _WILDCARD_LABELS:
        raise TargetError(value, "a wildcard needs two labels after the star, as *.example.com")
    return Host(suffix=suffix)


def _parse_range(text: str, value: object) -> Host:
    address, _, length = text.partition("/")
    if not (length.isascii() and length.isdigit()) or (len(length) > 1 and length[0] == "0"):
        raise TargetError(value, "a range is written address/prefix; a path needs a scheme")
    if ":" not in address and not _QUAD.match(address):
        raise TargetError(value, "a range starts with a plain address; a path needs a scheme")
    network_type = IPv6Network if ":" in address else IPv4Network
    try:
        return _host_of(network_type(f"{address}/{length}"))
    except ValueError as error:
        raise TargetError(value, f"not an address range: {error}") from error


def _ascii_name(text: str, value: object) -> str:
    name = text.lower()
    if not name.isascii():
        name = _idna(text, value)
    name = name.removesuffix(".")
    if not name:
        raise TargetError(value, "no host")
    return name


def _check_label(label: str, value: object) -> None:
    if not label:
        raise TargetError(value, "the host name has an empty label")
    if "*" in label:
        raise TargetError(value, "a star stands only for whole labels at the front: *.example.com")
    if not _LABEL.match(label):
        raise TargetError(value, f"{label!a} is not a label of a host name")
    if label.startswith("xn--"):
        _check_encoded(label, value)


def _idna(text: str, value: object) -> str:
    import idna  # noqa: PLC0415 - few targets need it, and its tables take time to load

    try:
        labels = idna.uts46_remap(text, std3_rules=False).split(".")
        return ".".join(label if label.isascii() else _encoded(label) for label in labels)
    except idna.IDNAError as error:
        raise TargetError(value, f"not an internationalised host name: {error}") from error


def _encoded(label: str) -> str:
    import idna  # noqa: PLC0415 - as above

    return idna.alabel(label).decode("ascii")


def _check_encoded(label: str, value: object) -> None:
    import idna  # noqa: PLC0415 - as above

    try:
        again = idna.alabel(idna.ulabel(label)).decode("ascii")
    except (idna.IDNAError, UnicodeError) as error:
        raise TargetError(value, f"{label!a} encodes no host name: {error}") from error
    if again != label:
        raise TargetError(value, f"{label!a} is a second spelling of {again!a}")


def _ipv6(text: str, value: object) -> IPv6Address:
    if "%" in text:
        raise TargetError(value, "an address with a zone means another host on each machine")
    try:
        return IPv6Address(text)
    except AddressValueError as error:
        raise TargetError(value, f"not an IPv6 address: {error}") from error


def _ipv4(name: str, value: object) -> IPv4Address:
    """Read an address as the C library does: 1 to 4 numbers, the last filling what is left."""
    numbers = [_number(part, value) for part in name.split(".")]
    *front, last = numbers
    if len(numbers) > 4 or any(number > 0xFF for number in front):  # noqa: PLR2004 - IPv4's shape
        raise TargetError(value, "the host ends in a number and is no IPv4 address")
    room = 8 * (4 - len(front))
    if last >= 1 << room:
        raise TargetError(value, "the host ends in a number and is no IPv4 address")
    high = sum(number << (24 - 8 * place) for place, number in enumerate(front))
    return IPv4Address(high + last)


def _number(part: str, value: object) -> int:
    if not _ADDRESS_PART.match(part):
        reason = f"the host ends in a number and is no IPv4 address: {part!a}"
        raise TargetError(value, reason)
    if part.startswith("0x"):
        return int(part, 16)
    return int(part, 8 if part.startswith("0") else 10)
