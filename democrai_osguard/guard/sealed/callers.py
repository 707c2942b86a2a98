"""Who asks for a guard: the host on its own account, or guarded code through somebody else.

A library calls what it is handed, so whoever handed it over asks. What is handed to a thread, a
pool or an event loop is run when nobody can be seen any more, and counts as guarded code's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from democrai_osguard.guard.sealed.core import here, text_of
from democrai_osguard.guard.sealed.frames import back
from democrai_osguard.guard.sealed.origins import (
    GUARDED,
    HOST,
    PACKAGE,
    STANDARD,
    knows_guards,
    origin,
    package_of,
)
from democrai_osguard.guard.sealed.threads import RUNNER_CODE

if TYPE_CHECKING:
    from types import CodeType, FrameType

SKIP: list[CodeType] = []  # frames that open and close on behalf of whoever called them
METHODS: list[CodeType] = []  # the public methods that open and close
_LOOP = "/asyncio/"


def opener() -> FrameType | None:
    """Return the frame that opens or closes a guard, as the stack says, whatever anybody claims.

    To be called by a function behind a door, since frames are counted.
    """
    frame = here()
    for _ in range(2):  # the function behind the door, and the one that shields it
        frame = None if frame is None else back(frame)
    if frame is not None and any(frame.f_code is code for code in METHODS):
        frame = back(frame)
    return past_helpers(frame)


def past_helpers(frame: FrameType | None) -> FrameType | None:
    """Return the first frame that acts on its own account."""
    while frame is not None and any(frame.f_code is code for code in SKIP):
        frame = back(frame)
    return frame


def is_guarded_code(frame: FrameType | None, makers: frozenset[str] = frozenset()) -> bool:
    """Tell whether guarded code asks here, itself or by what it handed to others.

    A package asks for itself where its file speaks of guards, or it had a part in making the one
    in question.
    """
    by_package = False
    while frame is not None:
        name, whose = text_of(frame.f_code.co_filename) or "", origin(frame.f_code)
        if whose in {GUARDED, HOST}:
            return whose == GUARDED
        if whose == PACKAGE:
            if knows_guards(name) or package_of(name) in makers:
                return False
            by_package = True
        elif frame.f_code is RUNNER_CODE[0] or (whose == STANDARD and _LOOP in name):
            return True
        frame = back(frame)
    return not by_package


def makers(frame: FrameType | None) -> frozenset[str]:
    """Return the packages that have a part in making a guard here."""
    found = set()
    while frame is not None:
        whose = origin(frame.f_code)
        if whose in {GUARDED, HOST}:
            break
        if whose == PACKAGE:
            found.add(package_of(text_of(frame.f_code.co_filename) or ""))
        frame = back(frame)
    return frozenset(found)
