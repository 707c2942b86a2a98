"""A very small event loop: descriptors and timers, one thread, one thing at a time."""

from __future__ import annotations

import heapq
import itertools
import selectors
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

READ: Final = selectors.EVENT_READ
WRITE: Final = selectors.EVENT_WRITE


class Loop:
    """Calls back when a descriptor is ready or a time has come."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._selector = selectors.DefaultSelector()
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._running = True
        self.now = clock

    def watch(self, descriptor: int, events: int, ready: Callable[[int], None]) -> None:
        """Call `ready` with the events of a descriptor; replaces what was watched before."""
        if descriptor in self._selector.get_map():
            self._selector.modify(descriptor, events, ready)
        else:
            self._selector.register(descriptor, events, ready)

    def forget(self, descriptor: int) -> None:
        """Stop watching a descriptor, before it is closed."""
        if descriptor in self._selector.get_map():
            self._selector.unregister(descriptor)

    def later(self, seconds: float, act: Callable[[], None]) -> None:
        """Call `act` once, after this time."""
        heapq.heappush(self._timers, (self.now() + seconds, next(self._order), act))

    def every(self, seconds: float, act: Callable[[], None]) -> None:
        """Call `act` again and again; the pause begins when it has returned."""

        def again() -> None:
            act()
            self.later(seconds, again)

        self.later(seconds, again)

    def stop(self) -> None:
        """Let `run` return."""
        self._running = False

    def run(self) -> None:
        """Work until `stop`."""
        while self._running:
            self.turn(self._pause())

    def turn(self, pause: float | None) -> None:
        """Wait once, at most this long, and call what is due."""
        for key, events in self._selector.select(pause):
            # An earlier callback of this turn may have closed the descriptor.
            if self._selector.get_map().get(key.fd) is key:
                key.data(events)
        while self._timers and self._timers[0][0] <= self.now():
            heapq.heappop(self._timers)[2]()

    def close(self) -> None:
        """Give the selector back."""
        self._selector.close()

    def _pause(self) -> float | None:
        return max(0.0, self._timers[0][0] - self.now()) if self._timers else None
