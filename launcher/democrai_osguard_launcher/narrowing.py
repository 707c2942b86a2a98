"""Who has narrowed itself: a process that has entered a Landlock layer of its own.

The kernel asks every layer of a process about what it does, and the broker is in none of them. So
for such a process, and for all that it starts, the broker does nothing that Landlock judges.

The mark is a limit that nobody has a use for, since no command gets message queues. What a process
starts inherits it, whoever its parent is, and only a capability that no command has would raise it.
"""

from __future__ import annotations

from . import kernel

_MARK = bytes(16)  # no queues at all, now and later


class Narrowing:
    """The marks of the processes of one run."""

    def __init__(self) -> None:
        self.has_begun = False  # anybody's
        self._usual = kernel.limit_of_queues(0)
        self._everybody = self._usual == _MARK  # then there is nothing to tell them apart by

    def begins(self, thread: int) -> None:
        """Mark the process of a thread that is about to enter a layer."""
        self.has_begun = True
        try:
            kernel.limit_queues(thread, _MARK)
        except ProcessLookupError:
            return  # it was ended meanwhile, and enters nothing any more
        except OSError:
            self._everybody = True

    def concerns(self, thread: int) -> bool:
        """Tell whether the process of the thread has entered a layer, or one that started it."""
        if not self.has_begun:
            return False
        try:
            return self._everybody or kernel.limit_of_queues(thread) != self._usual
        except OSError:
            return True  # it is gone
