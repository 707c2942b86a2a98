"""Network targets as the operating system sees them: a host and a port, nothing finer.

Imported only when a policy has network rules. Pure: it resolves no name.
"""

from __future__ import annotations

import ipaddress

from .record import Record

DEFAULT_PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443, "ftp": 21, "ssh": 22}
_HOST_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_*")
_MAX_PORT = 65535
_LABELS_AFTER_STAR = 2


class Endpoint(Record):
    """Where a rule leads. A port of None is every port; the path of a URL is the guard's affair."""

    host: str
    port: int | None
    is_name: bool
    path: str = ""


def parse(target: str) -> Endpoint:
    """Read a target of the contract's forms; raise ValueError for what parsers could dispute."""
    if any(c.isspace() or not c.isprintable() or c in "\\@" for c in target):
        raise ValueError(f"{target!r} holds a character that no target may hold")
    scheme, mark, rest = target.partition("://") if "://" in target else ("", "", target)
    if mark and not scheme.replace("+", "a").replace("-", "a").isalnum():
        raise ValueError(f"{target!r} has no proper scheme")
    if not scheme and _is_network(rest):
        return Endpoint(rest, None, is_name=False)
    authority, slash, path = rest.partition("/")
    if slash and not scheme:
        raise ValueError(f"{target!r} has a path and no scheme")
    host, port = _split(authority, target)
    if port is None:
        port = DEFAULT_PORTS.get(scheme.lower())
    return Endpoint(host.lower(), port, is_name=not _is_network(host), path=slash + path)


def _split(authority: str, target: str) -> tuple[str, int | None]:
    if authority.startswith("["):
        host, bracket, rest = authority[1:].partition("]")
        proper = bracket and ":" in host and "/" not in host and _is_network(host)
        if not proper or (rest and not rest.startswith(":")):
            raise ValueError(f"{target!r} has no proper IPv6 address")
        return host, _port(rest[1:], target) if rest else None
    host, colon, port = authority.partition(":")
    _check_host(host, target)
    return host, _port(port, target) if colon else None


def _check_host(host: str, target: str) -> None:
    if not host or not (_HOST_CHARACTERS.issuperset(host) or not host.isascii()):
        raise ValueError(f"{target!r} has no proper host")
    star, _, suffix = host.partition("*.")
    if "*" in host and (star or "*" in suffix or len(suffix.split(".")) < _LABELS_AFTER_STAR):
        raise ValueError(f"{target!r}: a star stands first, before at least two labels")
    if any(not label for label in host.rstrip(".").split(".")):
        raise ValueError(f"{target!r} has an empty label")


def _port(text: str, target: str) -> int:
    if not text.isascii() or not text.isdigit() or not 0 < int(text) <= _MAX_PORT:
        raise ValueError(f"{target!r} has no proper port")
    return int(text)


def _is_network(text: str) -> bool:
    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError:
        return False
    return True
