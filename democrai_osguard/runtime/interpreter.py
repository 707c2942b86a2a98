"""The interpreter that an install phase may start: the one that runs here, and no other program.

What it is was looked up when this was loaded: what guarded code does to `sys` opens nothing.
"""

from __future__ import annotations

import os
import sys

from democrai_osguard.access import Operation, ResourceType, Rule
from democrai_osguard.guard.runtime_paths import library_roots

_PROGRAM = os.path.realpath(sys.executable) if sys.executable else None
_LIBRARIES = tuple(dict.fromkeys(map(os.path.realpath, filter(os.path.exists, library_roots()))))


def interpreter_rules() -> tuple[Rule, ...]:
    """Return rules to start it, and for a child that starts it to read what it is made of."""
    if _PROGRAM is None:  # an application that embeds Python has none
        return ()
    reads = (Rule(ResourceType.FILESYSTEM, Operation.READ, path) for path in _LIBRARIES)
    return Rule(ResourceType.FILESYSTEM, Operation.EXECUTE, _PROGRAM), *reads
