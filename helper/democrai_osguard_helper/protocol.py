"""The words that a peer and the helper exchange: frozen messages, read strictly, with limits.

Pure and small: the guard imports this module. It opens nothing, and it never trusts a message to
say who sent it; the helper learns that from the socket.
"""

from __future__ import annotations

import json
import os
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final, TypeVar

from . import fields as read
from .endpoints import Endpoint, NameRule, Network
from .fields import ProtocolViolation, member_parsers
from .messages import (
    Applied,
    Confine,
    Denial,
    Events,
    LayerState,
    List,
    Listed,
    Listening,
    Listing,
    Notice,
    Refused,
    Release,
    Released,
    Reply,
    Report,
    Request,
    Revoke,
    Show,
    Shown,
    Status,
    Subject,
    Update,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    _Fields = Mapping[str, read.Parser]

VERSION: Final = 1
DEFAULT_SOCKET: Final = "/run/democrai-osguard/helper.sock"
SOCKET_VARIABLE: Final = "DEMOCRAI_OS_HELPER_SOCKET"
MAX_FRAME: Final = 2 * 1024 * 1024
PAGE: Final = MAX_FRAME // 2  # a list that is longer than this may go on
HEADER: Final = 4  # bytes: the length of what follows, most significant first
LAYERS: Final = ("bpf", "firewall")
REQUIRE: Final = ("full", "partial", "none")
MIN_REFRESH: Final = read.MIN_REFRESH
MAX_REFRESH: Final = read.MAX_REFRESH


# Whoever imports this module needs no other for what it sends and gets.
__all__ = [
    "Applied",
    "Confine",
    "Denial",
    "Endpoint",
    "Events",
    "LayerState",
    "List",
    "Listed",
    "Listening",
    "Listing",
    "NameRule",
    "Network",
    "Notice",
    "ProtocolViolation",
    "Refused",
    "Release",
    "Released",
    "Reply",
    "Report",
    "Request",
    "Revoke",
    "Show",
    "Shown",
    "Status",
    "Subject",
    "Update",
]

Parser = read.Parser
M = TypeVar("M")


_SUBJECT: Final = read.nested(Subject, {"type": read.word, "name": read.line})
_POLICY: Final[dict[str, Parser]] = {"endpoints": read.endpoints, "names": read.names}
_LISTING: Final = read.nested(
    Listing,
    {
        "sandbox": read.sandbox,
        "uid": read.count,
        "subject": _SUBJECT,
        "session": read.optional(read.line),
        "since": read.count,
        "refusals": read.count,
        "endpoints": read.count,
        "names": read.items(read.line),
        "layers": read.items(read.word),
        "populated": read.truth,
        "state": read.word,
        "follows": read.optional(read.word),
        "failed_names": read.items(read.prose),
    },
)
_LAYER: Final = read.nested(LayerState, {"layer": read.word, "reason": read.prose})

# Every message that exists, and how each of its fields is read. Nothing else is understood.
REQUESTS: Final[Mapping[type[Request], Mapping[str, Parser]]] = {
    Confine: {
        "subject": _SUBJECT,
        "session": read.optional(read.line),
        **_POLICY,
        "require": read.one_of(REQUIRE),
        "refresh": read.optional(read.refresh),
    },
    Update: {"sandbox": read.sandbox, **_POLICY, "follows": read.optional(read.word)},
    Revoke: {"sandbox": read.sandbox, **_POLICY},
    Release: {"sandbox": read.sandbox},
    List: {"after": read.optional(read.sandbox)},
    Show: {"sandbox": read.sandbox},
    Status: {},
    Events: {},
}
REPLIES: Final[Mapping[type[Reply], Mapping[str, Parser]]] = {
    Applied: {
        "sandbox": read.sandbox,
        "layers": read.items(read.word),
        "missing": read.items(read.prose),
        "failed_names": read.items(read.prose),
        "destroyed": read.count,
    },
    Released: {"sandbox": read.sandbox, "empty": read.truth},
    Listed: {"sandboxes": read.items(_LISTING)},
    Shown: {"sandbox": read.sandbox, **_POLICY},
    Report: {
        "version": read.count,
        "instance": read.word,
        "layers": read.items(_LAYER),
        "peer_identity": read.word,
        "sandboxes": read.count,
        "resolver": read.prose,
        "repairs": read.count,
        "listeners": read.count,
    },
    Listening: {},
    Denial: {
        "sandbox": read.sandbox,
        "uid": read.count,
        "subject": _SUBJECT,
        "session": read.optional(read.line),
        "address": read.word,
        "port": read.count,
        "protocol": read.word,
        "name": read.optional(read.line),
        "count": read.count,
    },
    Notice: {"sandbox": read.optional(read.sandbox), "code": read.word, "text": read.prose},
    Refused: {"code": read.word, "text": read.prose},
}
# What may be left out, because earlier clients do.
_EARLIER: Final[Mapping[str, Mapping[str, object]]] = {List.CALL: {"after": None}}
_REQUEST_ROWS: Final[Mapping[str, tuple[Callable[..., Request], _Fields]]] = {
    message.CALL: (message, row) for message, row in REQUESTS.items()
}
_REPLY_ROWS: Final[Mapping[str, tuple[Callable[..., Reply], _Fields]]] = {
    message.CALL: (message, row) for message, row in REPLIES.items()
}


def socket_path() -> str:
    """Return where the helper listens: the operator's variable, or the usual place."""
    return os.environ.get(SOCKET_VARIABLE) or DEFAULT_SOCKET


def parse_request(payload: bytes) -> Request:
    """Read what a peer sent; raise ProtocolViolation for anything that is no request."""
    return _parse(payload, _REQUEST_ROWS)


def parse_reply(payload: bytes) -> Reply:
    """Read what the helper sent; raise ProtocolViolation for anything that is no reply."""
    return _parse(payload, _REPLY_ROWS)


def dump(message: Request | Reply) -> bytes:
    """Write a message as the JSON that `parse_request` or `parse_reply` reads."""
    document = {"call": message.CALL, **_plain(message)}
    return json.dumps(document, separators=(",", ":"), ensure_ascii=True).encode()


def frame(message: Request | Reply) -> bytes:
    """Return the message with its length in front; raise ProtocolViolation where it is too long."""
    payload = dump(message)
    if len(payload) > MAX_FRAME:
        raise ProtocolViolation(f"a message of {len(payload)} bytes: at most {MAX_FRAME}")
    return len(payload).to_bytes(HEADER, "big") + payload


def goes_on(page: Listed) -> bool:
    """Tell whether a list is to be asked for again, after its last sandbox."""
    return len(dump(page)) > PAGE


def frame_length(header: bytes) -> int:
    """Read the length in front of a message; raise ProtocolViolation where it is out of bounds."""
    length = int.from_bytes(header, "big")
    if not 0 < length <= MAX_FRAME:
        raise ProtocolViolation(f"a frame of {length} bytes: expected 1 to {MAX_FRAME}")
    return length


def _parse(payload: bytes, table: Mapping[str, tuple[Callable[..., M], _Fields]]) -> M:
    document = read.document(payload)
    call = document.pop("call", None)
    document = {**_EARLIER.get(str(call), {}), **document}
    row = table.get(call) if isinstance(call, str) else None
    if row is None:
        raise ProtocolViolation(f"call: {str(call)[:40]!r} is not a call")
    build, parsers = row
    return build(**member_parsers(document, parsers, at=str(call)))


def _plain(value: Any) -> dict[str, object]:  # noqa: ANN401 - any message or part of one
    return {field.name: _plain_value(getattr(value, field.name)) for field in fields(value)}


def _plain_value(value: object) -> object:
    if isinstance(value, Network):
        return str(value)
    if isinstance(value, Endpoint):
        return {"network": str(value.network), "port": value.port, "protocol": value.protocol}
    if isinstance(value, tuple):
        return [_plain_value(item) for item in value]
    if hasattr(value, "__dataclass_fields__"):
        return _plain(value)
    return value
