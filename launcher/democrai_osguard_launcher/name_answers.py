"""What names stand for, as this host's own resolver says it to the broker.

Nothing that the command sends or receives counts here: it can tell which names to look up, never
what they mean. The look-ups happen in threads, since a name server may take its time.
"""

from __future__ import annotations

import ipaddress
import os
from _queue import SimpleQueue
from _thread import start_new_thread
from time import monotonic

from .peers import unmapped

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    import socket
    from collections.abc import Callable, Iterable
else:
    import _signal as signal
    import _socket as socket

MAX_NAMES = 1024  # that are remembered; the oldest goes first
MAX_UNDER_WAY = 64  # look-ups of names that the command asked about
MAX_ADDRESSES = 64  # of one name
KEPT = 600.0  # seconds that an address counts after it was last an answer
FRESH = 5.0  # seconds before a name is looked up again
_WORKERS = 4
_SERVERS_FILE = "/etc/resolv.conf"
_MOST_OF_FILE = 1 << 16
_MAX_SERVERS = 3
_DEFAULT_SERVER = "127.0.0.1"


class _Known:
    def __init__(self) -> None:
        self.until: dict[bytes, float] = {}
        self.asked_at: float | None = None
        self.under_way = False


class NameAnswers:
    """Names, and the addresses that were answers for them."""

    def __init__(self, look_up: Callable[[str], list[bytes]] | None = None) -> None:
        self.file = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._look_up = look_up or host_addresses
        self._known: dict[str, _Known] = {}
        self._questions: SimpleQueue[str] = SimpleQueue()
        self._answers: SimpleQueue[tuple[str, list[bytes]]] = SimpleQueue()
        self._workers = 0

    def ask(self, names: Iterable[str]) -> bool:
        """Look up what is not fresh; tell whether any of the names is being looked up."""
        under_way = [self._ask(name) for name in names]  # each of them, not up to the first
        return any(under_way)

    def is_under_way(self, names: Iterable[str]) -> bool:
        """Tell whether any of the names is being looked up."""
        return any(name in self._known and self._known[name].under_way for name in names)

    def has_room(self) -> bool:
        """Tell whether more may be looked up for the command's own sake."""
        return sum(known.under_way for known in self._known.values()) < MAX_UNDER_WAY

    def stands_for(self, name: str, address: bytes) -> bool:
        """Tell whether the address was an answer for the name, not long ago."""
        known = self._known.get(name)
        return known is not None and known.until.get(address, 0) > monotonic()

    def names_of(self, address: bytes) -> list[str]:
        """Return the names that the address was an answer for, the latest last."""
        return [name for name in self._known if self.stands_for(name, address)]

    def take(self) -> bool:
        """Take answers in; tell whether there were any."""
        try:
            os.eventfd_read(self.file)
        except BlockingIOError:
            return False
        while not self._answers.empty():
            self._learn(*self._answers.get())
        return True

    def _ask(self, name: str) -> bool:
        known = self._known.get(name)
        if known is None:
            known = self._known[name] = _Known()
            self._forget_the_oldest()
        if known.under_way:
            return True
        if known.asked_at is not None and monotonic() - known.asked_at < FRESH:
            return False
        known.under_way = self._has_worker()
        if known.under_way:
            self._questions.put(name)
        return known.under_way

    def _learn(self, name: str, addresses: list[bytes]) -> None:
        known = self._known.pop(name, None)
        if known is None:
            return
        self._known[name] = known  # the latest is the last
        now = monotonic()
        known.under_way, known.asked_at = False, now
        known.until = {address: until for address, until in known.until.items() if until > now}
        known.until.update(dict.fromkeys(addresses[:MAX_ADDRESSES], now + KEPT))

    def _forget_the_oldest(self) -> None:
        while len(self._known) > MAX_NAMES:
            del self._known[next(iter(self._known))]

    def _has_worker(self) -> bool:
        """Start one more while they are few; tell whether there is any.

        The command may have used up what this user can start: a name then means nothing yet.
        """
        if self._workers < _WORKERS:
            # Signals are the main thread's: it passes them on.
            before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
            try:
                start_new_thread(self._work, ())
                self._workers += 1
            except RuntimeError:
                return self._workers > 0
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return True

    def _work(self) -> None:
        while True:
            name = self._questions.get()
            try:
                found = self._look_up(name)
            except (OSError, ValueError):
                found = []
            self._answers.put((name, found))
            os.eventfd_write(self.file, 1)


def host_addresses(name: str) -> list[bytes]:
    """Ask this host's resolver for every address of a name."""
    found = socket.getaddrinfo(name.encode("ascii"), None, 0, socket.SOCK_STREAM)
    texts = dict.fromkeys(str(address[0]).partition("%")[0] for *_, address in found)
    return [unmapped(ipaddress.ip_address(text).packed) for text in texts]


def name_servers() -> frozenset[bytes]:
    """Return the addresses of the servers that this host asks; none where that cannot be read."""
    try:
        with open(_SERVERS_FILE, encoding="utf-8", errors="replace") as file:
            lines = file.read(_MOST_OF_FILE).splitlines()
    except FileNotFoundError:
        lines = []
    except OSError:
        return frozenset()
    words = [line.split() for line in lines]
    named = [each[1] for each in words if each[:1] == ["nameserver"] and len(each) > 1]
    return frozenset(_packed(named[:_MAX_SERVERS] or [_DEFAULT_SERVER]))


def _packed(texts: Iterable[str]) -> Iterable[bytes]:
    for text in texts:
        try:
            yield unmapped(ipaddress.ip_address(text.partition("%")[0]).packed)
        except ValueError:
            continue
