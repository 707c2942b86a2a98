"""Who may use the page: a link that works once, then a cookie and a token that go together.

The cookie alone is worth nothing: browsers send it to every port of a host, so each call also
carries a token that only our own page can read. Nothing here knows a web framework.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

VISIT_SECONDS = 12 * 3600.0
_VISITS = 32  # browsers at once; the oldest gives way
_TOKEN_BYTES = 32


@dataclass(frozen=True, slots=True)
class Visit:
    """What a browser is given when it enters. Its repr shows none of it."""

    cookie: str
    token: str

    def __repr__(self) -> str:
        return "Visit(…)"


class Gate:
    """Keeps digests only: what it remembers opens nothing."""

    def __init__(self, origins: Iterable[str], clock: Callable[[], float] = time.monotonic) -> None:
        self.origins = frozenset(origins)
        self._hosts = {urlsplit(origin).netloc for origin in self.origins}
        self._clock = clock
        self._lock = threading.Lock()
        self._link: bytes | None = None
        self._visits: dict[bytes, tuple[bytes, float]] = {}

    def new_link(self) -> str:
        """Return a token for one entry; an earlier one that was not used ends."""
        token = secrets.token_urlsafe(_TOKEN_BYTES)
        with self._lock:
            self._link = _digest(token)
        return token

    def enter(self, token: str) -> Visit | None:
        """Take a link's token, once."""
        with self._lock:
            if self._link is None or not hmac.compare_digest(self._link, _digest(token)):
                return None
            self._link = None
            visit = Visit(secrets.token_urlsafe(_TOKEN_BYTES), secrets.token_urlsafe(_TOKEN_BYTES))
            while len(self._visits) >= _VISITS:
                del self._visits[next(iter(self._visits))]
            until = self._clock() + VISIT_SECONDS
            self._visits[_digest(visit.cookie)] = (_digest(visit.token), until)
            return visit

    def knows(self, cookie: str | None) -> bool:
        """Tell whether a cookie is one of ours. It lets its holder see an empty page."""
        return self._visit(cookie) is not None

    def admits(self, cookie: str | None, token: str | None) -> bool:
        """Tell whether a call carries a cookie and the token that belongs to it."""
        held = self._visit(cookie)
        return held is not None and hmac.compare_digest(held, _digest(token or ""))

    def leave(self, cookie: str | None) -> None:
        """End a visit."""
        with self._lock:
            self._visits.pop(_digest(cookie or ""), None)

    def is_host(self, host: str | None) -> bool:
        """Tell whether a Host header names us. Any other name was pointed at us by a stranger."""
        return host is not None and host.lower() in self._hosts

    def is_origin(self, origin: str | None) -> bool:
        """Tell whether a call that changes something comes from our own page."""
        return origin is not None and origin.lower() in self.origins

    def _visit(self, cookie: str | None) -> bytes | None:
        with self._lock:
            held = self._visits.get(_digest(cookie or ""))
            if held is None or self._clock() > held[1]:
                return None
            return held[0]


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
