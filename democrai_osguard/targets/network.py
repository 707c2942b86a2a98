"""Network targets: scheme, host, port, path and query, each in normal form.

A target stands for a set of places to reach; a rule covers a target when each of its parts
covers the same part of it. Default ports are explicit in the value and hidden in print.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

from democrai_osguard.errors import NetworkTargetMissing, TargetError
from democrai_osguard.targets.host import LOCALHOST, Host, parse_host
from democrai_osguard.targets.url_path import Segments, beneath, parse_query, parse_url_path

TARGET_LIMIT = 16_384

DEFAULT_PORTS = {
    "amqp": 5672,
    "amqps": 5671,
    "ftp": 21,
    "ftps": 990,
    "git": 9418,
    "http": 80,
    "https": 443,
    "imap": 143,
    "imaps": 993,
    "ldap": 389,
    "ldaps": 636,
    "mongodb": 27017,
    "mqtt": 1883,
    "mqtts": 8883,
    "mysql": 3306,
    "postgres": 5432,
    "postgresql": 5432,
    "redis": 6379,
    "rediss": 6379,
    "sftp": 22,
    "smtp": 25,
    "smtps": 465,
    "ssh": 22,
    "ws": 80,
    "wss": 443,
}
_NO_NETWORK = frozenset({"about", "blob", "data", "file", "javascript", "unix"})
_PORT_LIMIT, _PORT_DIGITS = 65_535, 16

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*\Z")
# Characters that Python prints and nobody sees: joiners, fillers, blanks, variation selectors.
_INVISIBLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
_AUTHORITY_END = re.compile(r"[/?#]")


@dataclass(frozen=True, slots=True)
class NetworkTarget:
    """A network target in normal form. Without scheme or port it means every one of them."""

    host: Host
    scheme: str | None = None
    port: int | None = None
    path: Segments = ()
    query: str | None = None

    def __str__(self) -> str:
        if self.scheme is None:
            return str(self.host) if self.port is None else f"{self.host.bracketed}:{self.port}"
        port = "" if self.port == DEFAULT_PORTS.get(self.scheme) else f":{self.port}"
        path = "".join(f"/{segment}" for segment in self.path)
        query = "" if self.query is None else f"?{self.query}"
        return f"{self.scheme}://{self.host.bracketed}{port}{path}{query}"

    def covers(self, other: NetworkTarget) -> bool:
        """Tell whether everything that `other` stands for is within this."""
        return (
            self.scheme in {None, other.scheme}
            and self.port in {None, other.port}
            and self.query in {None, other.query}
            and is_prefix(beneath(self.path), beneath(other.path))
            and self.host.covers(other.host)
        )

    def meet(self, other: NetworkTarget) -> NetworkTarget | None:
        """Return what both stand for, None where they have nothing in common."""
        host = _narrower_host(self.host, other.host)
        path = _narrower_path(self.path, other.path)
        if host is None or path is None:
            return None
        if not all(
            _agree(mine, theirs)
            for mine, theirs in (
                (self.scheme, other.scheme),
                (self.port, other.port),
                (self.query, other.query),
            )
        ):
            return None
        return NetworkTarget(
            host,
            self.scheme if other.scheme is None else other.scheme,
            self.port if other.port is None else other.port,
            path,
            self.query if other.query is None else other.query,
        )


@functools.lru_cache(maxsize=4096)
def parse_network(text: str) -> NetworkTarget:
    """Read a network target; raise TargetError with the reason where it is not one."""
    _check_characters(text)
    scheme, separator, rest = text.partition("://")
    if separator:
        return _parse_url(scheme, rest, text)
    if "#" in text or "?" in text:
        raise TargetError(text, "a query or a fragment needs a scheme before it")
    if "/" in text:
        return NetworkTarget(parse_host(text, text))
    host, port = _split_port(text, text)
    return NetworkTarget(parse_host(host, text), port=port)


def is_prefix(front: Segments, whole: Segments) -> bool:
    """Tell whether one path is the other or stands above it."""
    return whole[: len(front)] == front


def _check_characters(text: object) -> None:
    if isinstance(text, (str, bytes)) and not text.strip():
        raise NetworkTargetMissing(text, "empty; name a host or a URL")
    if not isinstance(text, str):
        raise TargetError(text, "a network target is text")
    if len(text) > TARGET_LIMIT:
        raise TargetError(text, f"longer than {TARGET_LIMIT} characters")
    if not text.isprintable() or any(char.isspace() for char in text):
        raise TargetError(text, "contains a space or a control character")
    if _INVISIBLE.search(text):
        raise TargetError(text, "contains an invisible character")
    if "\\" in text:
        raise TargetError(text, "contains a backslash, which some readers take for a slash")


def _parse_url(scheme: str, rest: str, text: str) -> NetworkTarget:
    if not _SCHEME.match(scheme):
        raise TargetError(text, f"{scheme!a} is not a scheme")
    scheme = scheme.lower()
    if scheme in _NO_NETWORK or scheme.endswith("+unix"):
        raise TargetError(text, f"{scheme} is no network scheme")
    end = _AUTHORITY_END.search(rest)
    authority = rest[: end.start()] if end else rest
    if authority.count(":") > 1 and not authority.startswith("["):
        raise TargetError(text, "an IPv6 address in a URL stands in brackets")
    path, query = _split_query(rest[len(authority) :])
    name, port = _split_port(authority, text)
    host = parse_host(name, text)
    if port is None:
        port = DEFAULT_PORTS.get(scheme)
    if port is None:
        raise TargetError(text, f"{scheme} has no port of its own; write the port")
    return NetworkTarget(host, scheme, port, parse_url_path(path, text), parse_query(query, text))


def _split_query(tail: str) -> tuple[str, str]:
    path, _, query = tail.partition("#")[0].partition("?")
    return path, query


def _split_port(authority: str, text: str) -> tuple[str, int | None]:
    if "@" in authority:
        shown = text if "://" in text else f"***@{authority.rpartition('@')[2]}"
        raise TargetError(shown, "contains user information before '@'; leave it out")
    if authority.startswith("["):
        host, bracket, after = authority.partition("]")
        if after and not after.startswith(":"):
            raise TargetError(text, "something stands between ']' and the port")
        return host + bracket, _port(after[1:], text) if after else None
    if authority.count(":") != 1:
        return authority, None  # a name, or an IPv6 address without brackets
    host, _, digits = authority.partition(":")
    return host, _port(digits, text)


def _port(digits: str, text: str) -> int:
    if not (digits.isascii() and digits.isdigit()) or len(digits) > _PORT_DIGITS:
        wrong = "what follows the host" if "@" in text else ascii(digits)  # part of a password
        raise TargetError(text, f"{wrong} is not a port")
    port = int(digits)
    if not 0 < port <= _PORT_LIMIT:
        raise TargetError(text, f"port {port} is not between 1 and {_PORT_LIMIT}")
    return port


def _agree(mine: object, theirs: object) -> bool:
    return mine is None or theirs is None or mine == theirs


def _narrower_host(mine: Host, theirs: Host) -> Host | None:
    if mine.covers(theirs):
        return theirs
    if theirs.covers(mine):
        return mine
    # This machine has one name for addresses of both families, so ranges of both can share it.
    this_machine = Host(name=LOCALHOST)
    return this_machine if mine.covers(this_machine) and theirs.covers(this_machine) else None


def _narrower_path(mine: Segments, theirs: Segments) -> Segments | None:
    if is_prefix(beneath(mine), beneath(theirs)):
        return theirs
    return mine if is_prefix(beneath(theirs), beneath(mine)) else None
