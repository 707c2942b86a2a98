"""What else a child takes over: descriptors, a process group or a session; and what it does not."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from democrai_osguard.errors import ContractError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

NEW_SESSION = -1
_STANDARD = 3
_MOST, _HIGHEST = 60, 511  # as many as go to the launcher, and as high as it keeps a place for
_SAME_USER = "a child is the user that its application is"
_BYTES = "streams are bytes, as with asyncio"
# What asyncio.create_subprocess_exec takes as well: what stands for nothing, and why no more.
_REFUSED: Mapping[str, tuple[tuple[object, ...], str]] = {
    "bufsize": ((0, -1), "streams have no buffer of their own"),
    "close_fds": ((True,), "name what is to stay open in pass_fds"),
    "encoding": ((None,), _BYTES),
    "errors": ((None,), _BYTES),
    "executable": ((None,), "the first word is the program that is judged and started"),
    "extra_groups": ((None,), _SAME_USER),
    "group": ((None,), _SAME_USER),
    "pipesize": ((-1,), "pipes are as large as the kernel makes them"),
    "preexec_fn": ((None,), "no code runs in the child before it is confined"),
    "restore_signals": ((True,), "a child begins with the signals of a new program"),
    "shell": ((False, None), "name the shell as the program, with its -c"),
    "text": ((False, None), _BYTES),
    "umask": ((-1,), "what a confined child creates is its user's alone"),
    "universal_newlines": ((False, None), _BYTES),
    "user": ((None,), _SAME_USER),
}
_NUMBERS = {"bufsize", "pipesize", "umask"}


def check_others(given: Mapping[str, object]) -> None:
    """Raise TypeError for an argument that is unknown, or that a child cannot have."""
    for name, value in given.items():
        if name not in _REFUSED:
            raise TypeError(f"run_subprocess: {name!r} is no argument")
        nothing, why = _REFUSED[name]
        if not any(value is each or (value == each and name in _NUMBERS) for each in nothing):
            raise TypeError(f"run_subprocess: {name}={value!r} is not possible: {why}")


def joined(*, start_new_session: bool, process_group: int | None) -> int | None:
    """Return which process group to join, NEW_SESSION, or None for the caller's."""
    if process_group is None or process_group == -1:
        return NEW_SESSION if start_new_session else None
    if not isinstance(process_group, int):
        raise TypeError(f"process_group: expected a number, not {process_group!r}")
    if process_group < 0:
        raise ContractError(f"process_group: {process_group!r} is no process group")
    if start_new_session:
        raise PermissionError(errno.EPERM, "who leads a session can join no process group")
    return int(process_group)


def kept(pass_fds: Sequence[int]) -> tuple[int, ...]:
    """Return the descriptors to pass on; raise OSError for one that is not open."""
    numbers = tuple(dict.fromkeys(pass_fds))
    for number in numbers:
        if not isinstance(number, int):
            raise TypeError(f"pass_fds: expected numbers, not {number!r}")
        os.fstat(number)
    passed = tuple(int(number) for number in numbers if number >= _STANDARD)
    if len(passed) > _MOST or max(passed, default=0) > _HIGHEST:
        raise ContractError(f"pass_fds: at most {_MOST} descriptors up to {_HIGHEST}")
    return passed
