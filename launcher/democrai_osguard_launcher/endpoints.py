"""Network targets as the operating system sees them: a host and a port, nothing finer.

Imported only when a policy has network rules. Pure: it resolves no name.
"""

from __future__ import annotations

import ipaddress

from .record import Record

LOCALHOST = "localhost"  # this machine, whatever its resolver says
# As the guard has them: a test compares the two.
DEFAULT_PORTS = {
    "amqp": 5672, "amqps": 5671, "ftp": 21, "ftps": 990, "git": 9418, "http": 80, "https": 443,
    "imap": 143, "imaps": 993, "ldap": 389, "ldaps": 636, "mongodb": 27017, "mqtt": 1883,
    "mqtts": 8883, "mysql": 3306, "postgres": 5432, "postgresql": 5432, "redis": 6379,
    "rediss": 6379, "sftp": 22, "smtp": 25, "smtps": 465, "ssh": 22, "ws": 80, "wss": 443,
}  # fmt: skip
_HOST_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_*")
_PLAIN = _HOST_CHARACTERS - {"*"} | {"/", "~"}  # in a path: what no server reads in two ways
_MAX_PORT, _MOST_DIGITS = 65535, 5
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
        raise ValueError(f"{without_user(target)!r} holds a character that no target may hold")
    scheme, mark, rest = target.partition("://") if "://" in target else ("", "", target)
    if mark and not scheme.replace("+", "a").replace("-", "a").isalnum():
        raise ValueError(f"{target!r} has no proper scheme")
    if not scheme and is_address(rest):
        return Endpoint(rest, None, is_name=False)
    authority, slash, path = rest.partition("/")
    if slash and not scheme:
        raise ValueError(f"{target!r} has a path and no scheme")
    host, port = _split(authority, target)
    if port is None and scheme:
        port = DEFAULT_PORTS.get(scheme.lower())
        if port is None:  # every port would be more than anybody meant
            raise ValueError(f"{target!r}: {scheme} has no port of its own; write the port")
    name = host.lower()
    is_name = name != LOCALHOST and not is_address(name)
    return Endpoint(name, port, is_name=is_name, path=slash + path)


def normal(target: str) -> str:
    """Return a sound target as the guard spells it, as far as that takes no tables.

    Names beyond ASCII, odd spellings of addresses, and escapes and queries stay as they are.
    """
    found = parse(target)
    scheme, mark, _ = target.partition("://") if "://" in target else ("", "", "")
    host = _normal_host(found.host)
    if not mark and found.port is None:
        return host
    bracketed = f"[{host}]" if ":" in host else host
    default = DEFAULT_PORTS.get(scheme.lower()) if mark else None
    port = "" if found.port == default else f":{found.port}"
    return f"{scheme.lower()}{mark}{bracketed}{port}{_normal_path(found.path)}"


def _normal_host(name: str) -> str:
    host = name.removesuffix(".")
    if not is_address(host):
        return host
    network = ipaddress.ip_network(host, strict=False)
    if network.is_loopback:
        return LOCALHOST
    return host if "/" in host else str(network.network_address)


def _normal_path(path: str) -> str:
    if not _PLAIN.issuperset(path):
        return path
    segments: list[str] = []
    parts = path.split("/")[1:]
    for part in parts:
        if part == "..":
            segments = segments[:-1]
        elif part != ".":
            segments.append(part)
    if parts and parts[-1] in {".", ".."}:
        segments.append("")
    return "" if segments == [""] else "".join(f"/{each}" for each in segments)


def without_user(target: str) -> str:
    """Return the target without what stands before its '@', where people put passwords."""
    scheme, mark, rest = target.partition("://") if "://" in target else ("", "", target)
    _, at, host = rest.rpartition("@")
    return f"{scheme}{mark}***@{host}" if at else target


def _split(authority: str, target: str) -> tuple[str, int | None]:
    if authority.startswith("["):
        host, bracket, rest = authority[1:].partition("]")
        proper = bracket and ":" in host and "/" not in host and is_address(host)
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
    digits = text.lstrip("0") if text.isascii() and text.isdigit() else ""
    if not 0 < len(digits) <= _MOST_DIGITS or int(digits) > _MAX_PORT:
        raise ValueError(f"{target!r} has no proper port")
    return int(digits)


def is_address(text: str) -> bool:
    """Tell whether the text is an address or a range of them."""
    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError:
        return False
    return True
