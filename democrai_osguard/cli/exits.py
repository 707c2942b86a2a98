"""Exit codes of `democrai-osguard`: an interface like any other."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """What a caller learns without reading a word."""

    ALLOWED = 0
    DENIED = 1  # also: a checked manifest has problems
    REQUIRES_APPROVAL = 2
    USAGE = 64  # also: settings, a manifest or another input that is not understood
    NOT_ENFORCED = 125  # this host cannot protect what was to be run
