"""System dependencies: the bare name of a program or package."""

from __future__ import annotations

import re

from democrai_osguard.errors import TargetError

_NAME = re.compile(r"[A-Za-z0-9._+-]{1,255}\Z")


def normalize_dependency(text: object) -> str:
    """Return the name as it is; raise TargetError if it is anything but a bare name."""
    if not isinstance(text, str) or not _NAME.match(text):
        raise TargetError(text, "a dependency is a bare name of letters, digits and . _ + -")
    if text in {".", ".."}:
        raise TargetError(text, "names a folder, not a program")
    return text
