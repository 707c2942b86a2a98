"""A small network of the test's own: a fresh namespace, addresses on loopback, real listeners.

Nothing here touches the host's rules or sends a packet out of the namespace that it made.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import select
import socket
import subprocess
import threading
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from democrai_osguard_helper.cgroups import Box

CLONE_NEWNET: Final = 0x40000000
ALLOWED: Final = {4: "198.18.0.1", 6: "fd00:5::1"}
FORBIDDEN: Final = {4: "198.18.0.2", 6: "fd00:5::2"}
PORT: Final = 7001
OTHER_PORT: Final = 7002
POLL_MILLISECONDS: Final = 50
PATIENCE: Final = 3.0  # seconds: an answer on loopback takes none of it, on a host with time
_libc = ctypes.CDLL(None, use_errno=True)


def _namespace(call: Callable[..., int], *args: object) -> None:
    if call(*args) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def unshare_network() -> None:
    _namespace(_libc.unshare, CLONE_NEWNET)


@contextlib.contextmanager
def fresh_namespace() -> Iterator[None]:
    """Live in a new network namespace; this thread and what it starts."""
    home = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    unshare_network()
    try:
        _furnish()
        yield
    finally:
        _namespace(_libc.setns, home, CLONE_NEWNET)
        os.close(home)


def _furnish() -> None:
    for words in (
        "link set lo up",
        *(f"addr add {places[4]}/32 dev lo" for places in (ALLOWED, FORBIDDEN)),
        *(f"-6 addr add {places[6]}/128 dev lo nodad" for places in (ALLOWED, FORBIDDEN)),
    ):
        subprocess.run(["ip", *words.split()], check=True)
    for name, value in (
        ("ping_group_range", "0 2147483647"),  # a fresh namespace lets nobody ping
        ("tcp_fastopen", "1027"),  # client and server, without a cookie
    ):
        with open(f"/proc/sys/net/ipv4/{name}", "w", encoding="ascii") as file:
            file.write(value)


class Listeners:
    """Answers `ok` to every connection and datagram, on every address of the lab."""

    def __init__(self) -> None:
        self._sockets: dict[int, socket.socket] = {}
        self._clients: dict[int, socket.socket] = {}
        self._ended = threading.Event()
        self._poll = select.poll()  # thousands of clients are more than `select` takes
        for places in (ALLOWED, FORBIDDEN):
            for port in (PORT, OTHER_PORT):
                self._open(socket.AF_INET, (places[4], port))
                self._open(socket.AF_INET6, (places[6], port))
        self._open(socket.AF_INET, ("127.0.0.1", PORT))
        self._open(socket.AF_INET6, ("::1", PORT))
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _open(self, family: socket.AddressFamily, address: tuple[str, int]) -> None:
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
            listener = socket.socket(family, kind)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            if kind is socket.SOCK_STREAM:
                listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_FASTOPEN, 16)
                listener.listen(64)
            listener.settimeout(0)
            self._sockets[listener.fileno()] = listener
            self._poll.register(listener, select.POLLIN)

    def _serve(self) -> None:
        while not self._ended.is_set():
            for descriptor, _ in self._poll.poll(POLL_MILLISECONDS):
                with contextlib.suppress(OSError):
                    self._answer(descriptor)

    def _answer(self, descriptor: int) -> None:
        if descriptor in self._clients:
            client = self._clients[descriptor]
            data = client.recv(64)
            if data:
                client.send(b"ok")
                return
            del self._clients[descriptor]
            self._poll.unregister(descriptor)
            client.close()
            return
        listener = self._sockets[descriptor]
        if listener.type == socket.SOCK_DGRAM:
            _, sender = listener.recvfrom(64)
            listener.sendto(b"ok", sender)
        else:
            client, _ = listener.accept()
            self._clients[client.fileno()] = client
            self._poll.register(client, select.POLLIN)

    def close(self) -> None:
        self._ended.set()
        self._thread.join()
        for item in (*self._sockets.values(), *self._clients.values()):
            item.close()


def verdict(
    box: Box | None, action: Callable[[], bytes], before: Callable[[], None] | None = None
) -> str:
    """Run an action in a fork inside the box; return what happened, as the child wrote it."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        word = "crashed"
        try:
            if before is not None:
                before()
            if box is not None:
                box.move(os.getpid())
            word = "allowed" if action() == b"ok" else "silent"
        except TimeoutError:
            word = "silent"
        except OSError as error:
            word = errno.errorcode.get(error.errno or 0, "OSError")
        finally:
            os.write(writer, word.encode())
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        said = pipe.read()
    os.waitpid(pid, 0)
    return said
