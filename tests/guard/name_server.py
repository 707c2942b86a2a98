"""Acts that name a host, beside a name server that counts what it is asked.

Run as a program where networks and mounts are its own, with a `resolv.conf` that names 127.0.0.1.
It prints, for each act, how many questions arrived without a guard and with one, and what was said.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import struct
import sys
import threading
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parent.parent))

from guard.confined import confined

from democrai_osguard.access import Rule
from democrai_osguard.guard import install, process_guard_context

if TYPE_CHECKING:
    from collections.abc import Callable

SERVER = ("127.0.0.1", 53)
PORT = 9  # nobody listens there
ALLOWED = "allowed.test"
_SECONDS = 60
_MARK = b"everything before this has been counted"
_HEADER = 12
_A = 1


class NameServer:
    """Knows every name as this machine, and the names that it was asked for."""

    def __init__(self) -> None:
        self._asked: list[str] = []
        self._marked = threading.Event()
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(SERVER)
        threading.Thread(target=self._serve, daemon=True).start()

    def asked(self, name: str) -> int:
        """Return how often a name was asked for, by whatever was sent until now."""
        self._marked.clear()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            client.sendto(_MARK, SERVER)  # it waits behind all that came before
        assert self._marked.wait(_SECONDS)
        return self._asked.count(name)

    def _serve(self) -> None:
        while True:
            data, sender = self._socket.recvfrom(4096)
            if data == _MARK:
                self._marked.set()
            else:
                self._socket.sendto(self._answer(data), sender)

    def _answer(self, data: bytes) -> bytes:
        labels, place = [], _HEADER
        while data[place]:
            labels.append(data[place + 1 : place + 1 + data[place]].decode())
            place += 1 + data[place]
        self._asked.append(".".join(labels))
        (kind,) = struct.unpack_from(">H", data, place + 1)
        record = struct.pack(">HHHIH4s", 0xC00C, _A, 1, 0, 4, socket.inet_aton("127.0.0.1"))
        records = [record] if kind == _A else []
        head = data[:2] + struct.pack(">5H", 0x8180, 1, len(records), 0, 0)
        return head + data[_HEADER : place + 5] + b"".join(records)


def _with_socket(act: Callable[[socket.socket], object], kind: int = socket.SOCK_STREAM) -> None:
    with socket.socket(socket.AF_INET, kind) as client:
        act(client)


def _datagram(act: Callable[[socket.socket], object]) -> None:
    _with_socket(act, socket.SOCK_DGRAM)


async def _stream(name: str) -> None:
    _, writer = await asyncio.open_connection(name, PORT)
    writer.close()


async def _look_up(name: str) -> None:
    await asyncio.get_running_loop().getaddrinfo(name, PORT)


ACTS: dict[str, Callable[[str], object]] = {
    "connect": lambda name: _with_socket(lambda it: it.connect((name, PORT))),
    "connect-ex": lambda name: _with_socket(lambda it: it.connect_ex((name, PORT))),
    "connect-udp": lambda name: _datagram(lambda it: it.connect((name, PORT))),
    "sendto": lambda name: _datagram(lambda it: it.sendto(b"", (name, PORT))),
    "sendmsg": lambda name: _datagram(lambda it: it.sendmsg([b""], [], 0, (name, PORT))),
    "create-connection": lambda name: socket.create_connection((name, PORT)),
    "getaddrinfo": lambda name: socket.getaddrinfo(name, None),
    "getaddrinfo-bytes": lambda name: socket.getaddrinfo(name.encode(), PORT),
    "gethostbyname": socket.gethostbyname,
    "gethostbyname-ex": socket.gethostbyname_ex,
    "gethostbyaddr": socket.gethostbyaddr,
    "bind": lambda name: _datagram(lambda it: it.bind((name, PORT))),
    "asyncio-stream": lambda name: asyncio.run(_stream(name)),
    "asyncio-look-up": lambda name: asyncio.run(_look_up(name)),
    "http-client": lambda name: http.client.HTTPConnection(name, PORT).request("GET", "/"),
    "urlopen": lambda name: urllib.request.urlopen(f"http://{name}:{PORT}/"),
}


def said(act: Callable[[str], object], name: str) -> str:
    """Return the code of the refusal, or what else came of an act."""
    try:
        act(name)
    except Exception as error:  # noqa: BLE001 - whatever stopped it is the finding
        return str(getattr(error, "code", None) or type(error).__name__)
    return "done"


def attempt(
    server: NameServer, act: Callable[[str], object], name: str, *, guarded: bool
) -> object:
    """Return how often the name was asked for, and what was said."""

    def check() -> object:
        install()
        if not guarded:
            return said(act, name)
        rule = Rule("network", "connect", ALLOWED)  # type: ignore[arg-type] # Rule checks
        with process_guard_context("m", "module", [rule]):
            return said(act, name)

    words = confined(check)
    return [server.asked(name), words]


def main() -> None:
    """Perform every act on a name of its own, free and guarded, then one on the allowed name."""
    server = NameServer()
    found = {
        name: [
            attempt(server, act, f"{name}.free.test", guarded=False),
            attempt(server, act, f"{name}.guarded.test", guarded=True),
        ]
        for name, act in ACTS.items()
    }
    allowed = attempt(server, ACTS["getaddrinfo"], ALLOWED, guarded=True)
    print(json.dumps({"acts": found, "allowed": allowed}))  # noqa: T201 - the result


if __name__ == "__main__":
    main()
