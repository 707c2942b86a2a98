"""How one field of a message is read: each parser takes a JSON value and the place it stands.

Pure. Unknown, missing, doubled and mistyped fields are errors that name their place; numbers,
texts and lists have limits, so that a peer cannot make the helper hold more than it should.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final, TypeVar

from .endpoints import (
    MAX_PORT,
    PROTOCOLS,
    Endpoint,
    EndpointError,
    NameRule,
    parse_name,
    parse_network,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from .endpoints import Network

    Parser = Callable[[object, str], Any]
else:
    Parser = object

MAX_ENDPOINTS: Final = 16384
MAX_NAMES: Final = 256
MAX_WITHIN: Final = 16
MAX_ITEMS: Final = 65536
MAX_LINE: Final = 256
MAX_PROSE: Final = 1024
MAX_COUNT: Final = 2**63 - 1
MIN_REFRESH: Final = 5  # seconds: oftener than this nobody needs to ask for a name
MAX_REFRESH: Final = 3600
_WORD: Final = re.compile(r"[A-Za-z0-9_.:+-]{1,64}")
_SANDBOX: Final = re.compile(r"[0-9a-f]{12}")
_ENDPOINT_FIELDS: Final = frozenset({"network", "port", "protocol"})
_NAME_FIELDS: Final = frozenset({"name", "port", "protocol", "within"})

T = TypeVar("T")


class ProtocolViolation(Exception):
    """What arrived is not in the language; the connection ends."""


def document(payload: bytes) -> dict[str, object]:
    """Read one JSON object, strictly: UTF-8, no doubled keys, no constants, not deep."""
    try:
        text = payload.decode("utf-8")
        found = json.loads(text, object_pairs_hook=_unique, parse_constant=_constant)
    except (ValueError, RecursionError) as error:
        raise ProtocolViolation(f"not a JSON message: {str(error)[:120]}") from error
    if not isinstance(found, dict):
        raise ProtocolViolation("a message is a JSON object")
    return found


def member_parsers(
    value: Mapping[str, object], parsers: Mapping[str, Parser], *, at: str
) -> dict[str, Any]:
    """Read exactly the named fields, no fewer and no more."""
    if value.keys() != parsers.keys():
        strange = sorted(value.keys() ^ parsers.keys())
        raise ProtocolViolation(f"{at}: missing or unknown field {strange[0][:40]!r}")
    return {name: parse(value[name], f"{at}.{name}") for name, parse in parsers.items()}


def nested(build: Callable[..., T], parsers: Mapping[str, Parser]) -> Callable[[object, str], T]:
    """Make a parser of an object with exactly these fields."""

    def parse(value: object, at: str) -> T:
        return build(**member_parsers(_object(value, at), parsers, at=at))

    return parse


def optional(parse: Parser) -> Parser:
    """Make a parser that takes null as None."""
    return lambda value, at: None if value is None else parse(value, at)


def items(parse: Parser, most: int = MAX_ITEMS) -> Parser:
    """Make a parser of a list of such values."""

    def parse_items(value: object, at: str) -> tuple[Any, ...]:
        found = _list(value, at, most)
        return tuple(parse(item, f"{at}[{place}]") for place, item in enumerate(found))

    return parse_items


def one_of(words: Sequence[str]) -> Parser:
    """Make a parser that takes one of these words."""

    def parse(value: object, at: str) -> str:
        if not isinstance(value, str) or value not in words:
            raise ProtocolViolation(f"{at}: expected one of {', '.join(words)}")
        return value

    return parse


def word(value: object, at: str) -> str:
    """Read a short text of letters, digits and a few signs."""
    if not isinstance(value, str) or not _WORD.fullmatch(value):
        raise ProtocolViolation(f"{at}: expected a word")
    return value


def line(value: object, at: str) -> str:
    """Read a printable text of one line that is not empty."""
    return _text(value, at, MAX_LINE, least=1)


def prose(value: object, at: str) -> str:
    """Read a printable text of one line, perhaps empty."""
    return _text(value, at, MAX_PROSE, least=0)


def sandbox(value: object, at: str) -> str:
    """Read the identity of a sandbox."""
    if not isinstance(value, str) or not _SANDBOX.fullmatch(value):
        raise ProtocolViolation(f"{at}: expected the identity of a sandbox")
    return value


def truth(value: object, at: str) -> bool:
    """Read true or false."""
    if not isinstance(value, bool):
        raise ProtocolViolation(f"{at}: expected true or false")
    return value


def count(value: object, at: str) -> int:
    """Read a number that is not negative."""
    if type(value) is not int or not 0 <= value <= MAX_COUNT:
        raise ProtocolViolation(f"{at}: expected a count")
    return value


def refresh(value: object, at: str) -> int:
    """Read after how many seconds a name shall be looked up again."""
    if type(value) is not int or not MIN_REFRESH <= value <= MAX_REFRESH:
        raise ProtocolViolation(f"{at}: expected {MIN_REFRESH} to {MAX_REFRESH} seconds")
    return value


def endpoints(value: object, at: str) -> tuple[Endpoint, ...]:
    """Read a list of endpoints; one loop without closures, because it may hold thousands."""
    found = _list(value, at, MAX_ENDPOINTS)
    return tuple(_endpoint(item, at, place) for place, item in enumerate(found))


def addresses(value: object, at: str) -> tuple[Endpoint, ...]:
    """Read what names stand for: more than a peer may name itself, for each name has many."""
    found = _list(value, at, MAX_ITEMS)
    return tuple(_endpoint(item, at, place) for place, item in enumerate(found))


def names(value: object, at: str) -> tuple[NameRule, ...]:
    """Read a list of name rules."""
    found = _list(value, at, MAX_NAMES)
    return tuple(_name_rule(item, f"{at}[{place}]") for place, item in enumerate(found))


def _endpoint(value: object, at: str, place: int) -> Endpoint:
    try:
        item = _exactly(value, _ENDPOINT_FIELDS)
        return Endpoint(_network(item["network"]), _port(item["port"]), _protocol(item["protocol"]))
    except (ProtocolViolation, EndpointError) as error:
        raise ProtocolViolation(f"{at}[{place}]: {error}") from error


def _name_rule(value: object, at: str) -> NameRule:
    try:
        item = _exactly(value, _NAME_FIELDS)
        name = parse_name(_text(item["name"], "name", MAX_LINE, least=1))
        within = tuple(_network(part) for part in _list(item["within"], "within", MAX_WITHIN))
        return NameRule(name, _port(item["port"]), _protocol(item["protocol"]), within)
    except (ProtocolViolation, EndpointError) as error:
        raise ProtocolViolation(f"{at}: {error}") from error


def _exactly(value: object, names: frozenset[str]) -> dict[str, object]:
    if not isinstance(value, dict) or value.keys() != names:
        raise ProtocolViolation(f"expected the fields {', '.join(sorted(names))}")
    return value


def _network(value: object) -> Network:
    if not isinstance(value, str):
        raise ProtocolViolation("network: expected a text")
    return parse_network(value)


def _port(value: object) -> int | None:
    if value is None:
        return None
    if type(value) is not int or not 0 < value <= MAX_PORT:
        raise ProtocolViolation(f"port: expected 1 to {MAX_PORT} or null")
    return value


def _protocol(value: object) -> str | None:
    if value is not None and (not isinstance(value, str) or value not in PROTOCOLS):
        raise ProtocolViolation("protocol: expected tcp, udp or null")
    return value


def _object(value: object, at: str) -> dict[str, object]:
    if not isinstance(value, dict):
        raise ProtocolViolation(f"{at}: expected an object")
    return value


def _list(value: object, at: str, most: int) -> list[object]:
    if not isinstance(value, list):
        raise ProtocolViolation(f"{at}: expected a list")
    if len(value) > most:
        raise ProtocolViolation(f"{at}: {len(value)} items: at most {most}")
    return value


def _text(value: object, at: str, most: int, *, least: int) -> str:
    if not isinstance(value, str) or not least <= len(value) <= most or not value.isprintable():
        raise ProtocolViolation(f"{at}: expected a printable text of {least} to {most} characters")
    return value


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):  # readers disagree on which of two equal keys counts
        raise ProtocolViolation("a key stands twice in one object")
    return found


def _constant(text: str) -> object:
    raise ProtocolViolation(f"{text} is not JSON")
