"""What is known of the callers without asking /proc: who they are, and what their umask is.

Both are as they were when the command was started until a call changes them, and those calls come
by here. Asking /proc each time would cost as much as the rest of a create.
"""

from __future__ import annotations

import os
import time

_MODE_BITS = 0o777
_MOST = 256  # threads
_NOBODY = 0  # no thread has this number, so that it never comes back
_LASTS = 1.0  # seconds: then a thread's number could be another's


class Standing:
    """The umask of threads, and whether anybody has become somebody else."""

    def __init__(self, mask: int) -> None:
        self.is_ours = True  # all run as the user and group that the broker runs as
        self._mask: int | None = mask  # everybody's, until one is changed
        self._known: dict[int, tuple[int, float]] = {}
        self._changing: set[int] = set()  # threads whose change may not have happened yet

    def identity_changes(self) -> None:
        """Note that from now on each caller must be asked who it is."""
        self.is_ours = False

    def mask_changes(self, thread: int, mask: int) -> None:
        """Note that the thread is about to change its umask, and that of who shares it."""
        self._changing.discard(thread)
        self._mask = None
        self._known.clear()
        if not self._changing:  # otherwise it is open which of two changes comes last
            self._known[thread] = (mask & _MODE_BITS, time.monotonic())
        self._make_room()
        self._changing.add(thread)

    def _make_room(self) -> None:
        """Forget the threads that are gone; where too many are left, remember nothing any more."""
        if len(self._changing) >= _MOST:
            self._changing = {each for each in self._changing if os.path.exists(f"/proc/{each}")}
        if len(self._changing) >= _MOST:
            self._changing = {_NOBODY}

    def mask_of(self, thread: int) -> int | None:
        """Return the umask of a thread that waits in another call, None where it is not known."""
        if self._mask is not None:
            return self._mask
        self._changing.discard(thread)
        mask, since = self._known.get(thread, (None, 0.0))
        return mask if time.monotonic() - since < _LASTS else None

    def learn(self, thread: int, mask: int) -> None:
        """Remember what /proc said of a thread, unless that may be changing right now."""
        if self._changing:
            return
        if len(self._known) >= _MOST:
            self._known.clear()
        self._known[thread] = (mask, time.monotonic())
