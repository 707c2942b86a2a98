"""Which frames Python code gets to see: all but ours, and none beneath a callback of ours.

What the guard calls, and what interrupts it, runs above its frames: openers, codecs, finalizers,
signal handlers. A frame's way down (`f_back`) is the one look at the stack that the interpreter
does not report, so it is answered from here.
"""

from __future__ import annotations

from types import FrameType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

# A name in the namespaces whose frames nobody sees. The hook's says False: it does without ours.
SEALED = "democrai_osguard sealed"
# The way down as it is, taken before anybody else is shown another one.
back: Callable[[FrameType], FrameType | None] = FrameType.f_back.__get__
# dict's own methods: the globals of a frame may be of a class that lies.
_holds: Any = dict.__contains__
_get: Any = dict.get
# Flags of code whose frames are put above other ones each time they go on.
_RESUMED = 0x20 | 0x80 | 0x100 | 0x200


def is_ours(frame: FrameType) -> bool:
    """Tell whether a frame is one of the sealed part, or the hook's."""
    return _holds(frame.f_globals, SEALED)  # type: ignore[no-any-return] # a bool


def is_hook(frame: FrameType) -> bool:
    """Tell whether a frame is the hook's."""
    return _get(frame.f_globals, SEALED) is False


def leads_to_ours(frame: FrameType | None) -> bool:
    """Tell whether a frame, or one that it stands on, is ours."""
    while frame is not None and not _holds(frame.f_globals, SEALED):  # `is_ours`, without the call
        frame = back(frame)
    return frame is not None


def shown_back(frame: FrameType) -> FrameType | None:
    """Return what a frame stands on, as everybody sees it: the stack ends above a frame of ours.

    Whoever holds the frame of a function has been judged where it was handed out, and what that
    stands on never changes. A generator's stands on whoever resumes it, so all of that is looked
    at, the application's own code that we may have called among it.
    """
    beneath = back(frame)
    if beneath is None or is_ours(beneath):
        return None
    resumed = frame.f_code.co_flags & _RESUMED
    return None if resumed and leads_to_ours(beneath) else beneath
