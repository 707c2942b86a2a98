"""Acts on sockets that take time: the caller waits, the broker does not.

Each act is tried without waiting. Where the caller's own socket would have waited the call stays
open, and the act is tried again when the socket is ready. A caller that dies takes its act with it;
one that has a signal to handle is interrupted, as the kernel would.
"""

from __future__ import annotations

import errno
import os
import select
from time import monotonic

from . import notification

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from .broker import Broker
    from .caller import Call
    from .held_socket import HeldSocket

MAX_WAITING = 400  # calls; one more is refused
MAX_CONTENT = 1 << 26  # bytes of what they want to send, all together
_NOT_YET = (errno.EINPROGRESS, errno.EALREADY, errno.EAGAIN)
_READY = select.EPOLLOUT | select.EPOLLERR | select.EPOLLHUP | select.EPOLLONESHOT
_LOOK = 0.2  # seconds between two looks at the callers
_AGAIN = 0.02  # seconds between two tries where the kernel tells no moment
_UNIX = 1


class Waiting:
    """One act: who waits for it, and on which socket."""

    def __init__(self, call: Call, held: HeldSocket, act: Callable[[], int], late: int) -> None:
        self.call, self.held, self.act, self.late = call, held, act, late
        self.until = held.deadline()


class Dialling:
    """The acts that are under way."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._poll = select.epoll()
        self._waiting: dict[int, Waiting] = {}
        self._looked = self._tried_at = 0.0

    @property
    def file(self) -> int:
        """Return the descriptor that says when a socket is ready."""
        return self._poll.fileno()

    @property
    def patience(self) -> float | None:
        """Return after how many seconds to look again."""
        if not self._waiting:
            return None
        unsaid = any(one.held.family == _UNIX for one in self._waiting.values())
        return _AGAIN if unsaid else _LOOK

    def begin(
        self, call: Call, held: HeldSocket, act: Callable[[], int], *, waits: bool, late: int
    ) -> int | None:
        """Try the act; None when its caller waits. The socket is closed when the act is done.

        `late` is the errno for a caller whose own limit of time has passed.
        """
        waiting = False
        try:
            return self._at_first(held, act) if waits else act()
        except OSError as error:
            if error.errno not in _NOT_YET or not waits:
                raise
            if len(self._waiting) >= MAX_WAITING or self._content() + held.content > MAX_CONTENT:
                raise OSError(errno.ENOBUFS, os.strerror(errno.ENOBUFS)) from error
            self._wait(Waiting(call, held, act, late))
            waiting = True
            return None
        finally:
            if not waiting:
                held.close()

    def _content(self) -> int:
        return sum(one.held.content for one in self._waiting.values())

    def _at_first(self, held: HeldSocket, act: Callable[[], int]) -> int:
        """Try the act, and a second time if the peer has answered in the meantime."""
        try:
            return act()
        except BlockingIOError:
            poll = select.poll()
            poll.register(held.descriptor, select.POLLOUT)
            if held.family == _UNIX or not poll.poll(0):
                raise
        return act()

    def tend(self) -> None:
        """Try again what may have become possible; let go of who is gone."""
        ready = {number for number, _ in self._poll.poll(0)}
        now = monotonic()
        looks, again = now - self._looked >= _LOOK, now - self._tried_at >= _AGAIN
        self._looked = now if looks else self._looked
        self._tried_at = now if again else self._tried_at
        for number, one in tuple(self._waiting.items()) if ready or looks or again else ():
            if looks and not notification.is_waiting(self._broker.listener, one.call):
                self._end(number)
            elif number in ready or (again and one.held.family == _UNIX):
                self._try(number, one)
            elif one.until is not None and now >= one.until:
                self._answer(number, one, one.late)
            if looks and number in self._waiting and one.call.has_caught_signal():
                self._answer(number, one, errno.EINTR)

    def _try(self, number: int, one: Waiting) -> None:
        self._broker.settle(one.call, lambda: self._tried(number, one))

    def _tried(self, number: int, one: Waiting) -> int | None:
        try:
            result = one.act()
        except OSError as error:
            late = one.until is not None and monotonic() >= one.until
            if error.errno in _NOT_YET and not late:
                if one.held.family != _UNIX:
                    self._poll.modify(number, _READY)
                return None
            self._end(number)
            raise
        self._end(number)
        return result

    def _answer(self, number: int, one: Waiting, code: int) -> None:
        self._end(number)
        notification.refuse(self._broker.listener, one.call, code)

    def _wait(self, one: Waiting) -> None:
        number = one.held.descriptor
        self._waiting[number] = one
        if one.held.family != _UNIX:
            self._poll.register(number, _READY)

    def _end(self, number: int) -> None:
        one = self._waiting.pop(number)
        if one.held.family != _UNIX:
            self._poll.unregister(number)
        one.held.close()
