"""An engine that is not fully trusted: it counts what its server answers."""

from __future__ import annotations

import urllib.request


def count(url: str) -> int:
    """Return how many characters the server answers with."""
    with urllib.request.urlopen(url, timeout=30) as answer:  # noqa: S310 - the guard judges it
        return len(answer.read())
