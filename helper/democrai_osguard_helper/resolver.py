"""The resolver: an unprivileged process that turns names into addresses, and knows nothing else.

It speaks JSON lines on descriptor 0, so that the daemon can start it, or systemd can hand it a
connection. It reads /etc/hosts and /etc/resolv.conf and asks the servers there.
"""

from __future__ import annotations

import json
import os
import secrets
import select
import socket
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from . import dns
from .endpoints import EndpointError, Network, parse_name, parse_network

if TYPE_CHECKING:
    from collections.abc import Iterable

HOSTS: Final = "/etc/hosts"
RESOLV: Final = "/etc/resolv.conf"
HOSTS_TTL: Final = 60
TRY_SECONDS: Final = 1.5
TRIES: Final = 2
MAX_SERVERS: Final = 3
WORKERS: Final = 48  # names asked for at once: a slow one does not hold up the others
NAME_SECONDS: Final = 5.0  # for one name: nobody waits longer
MAX_LINE: Final = 64 * 1024
NOBODY: Final = 65534
_WHICH: Final = {dns.A: "IPv4", dns.AAAA: "IPv6"}
_FILE_LIMIT: Final = 1024 * 1024


def servers(text: str) -> tuple[Network, ...]:
    """Return the name servers of a resolv.conf; libc's default where it names none. Pure."""
    found = []
    for line in text.splitlines():
        words = line.split()
        if words[:1] == ["nameserver"] and len(words) > 1:
            try:
                found.append(parse_network(words[1]))
            except EndpointError:
                continue  # an address with a zone: not one that a rule could name
    return tuple(found[:MAX_SERVERS]) or (parse_network("127.0.0.1"),)


def from_hosts(text: str, name: str) -> list[tuple[Network, int]]:
    """Return the addresses that the hosts file has for a name. Pure."""
    found = []
    for line in text.splitlines():
        words = line.partition("#")[0].split()
        if name in (word.lower() for word in words[1:]):
            try:
                found.append((parse_network(words[0]), HOSTS_TTL))
            except EndpointError:
                continue
    return found


def resolve(name: str, asked: Iterable[Network], port: int) -> dict[str, object]:
    """Ask for every address of a name, both families."""
    found = from_hosts(_read(HOSTS), name)
    errors: list[tuple[str, str]] = []  # which addresses, and why there are none
    if not found:
        order, until = list(asked), time.monotonic() + NAME_SECONDS
        for kind in (dns.A, dns.AAAA):
            response = _ask_all(name, kind, order, port, until)
            found += response.addresses
            errors += [(_WHICH[kind], response.error)] if response.error else []
    error = _error(errors, found_any=bool(found))
    return {"name": name, "error": error, "addresses": [[str(a), ttl] for a, ttl in found]}


def _error(errors: list[tuple[str, str]], *, found_any: bool) -> str:
    """Say what failed; of a name with addresses, for which of them nobody could say anything."""
    if not found_any:
        return errors[0][1] if errors else "no address"
    failed = [f"{which} addresses: {why}" for which, why in errors if why != dns.ERRORS[3]]
    return "; ".join(failed)


def _ask_all(name: str, kind: int, order: list[Network], port: int, until: float) -> dns.Response:
    """Ask one server after the other; who does not answer is the last to be asked again."""
    last = dns.Response((), "no name server answered", truncated=False)
    for _ in range(TRIES):
        for server in tuple(order):
            if time.monotonic() > until:
                return last
            try:
                response = _ask(name, kind, server, port)
            except (OSError, dns.BadAnswer) as error:
                last = dns.Response((), f"{server}: {error}", truncated=False)
                order.remove(server)
                order.append(server)
                continue
            if response.error in {"", dns.ERRORS[3]}:
                return response
            last = response
    return last


def _ask(name: str, kind: int, server: Network, port: int) -> dns.Response:
    identity = secrets.randbelow(65536)
    packet = dns.question(identity, name, kind)
    response = _over_udp(packet, server, port, (identity, name, kind))
    if not response.truncated:
        return response
    return dns.parse(_over_tcp(packet, server, port), identity, name, kind)


def _family(server: Network) -> socket.AddressFamily:
    return socket.AF_INET if server.version == 4 else socket.AF_INET6  # noqa: PLR2004


def _over_udp(
    packet: bytes, server: Network, port: int, asked: tuple[int, str, int]
) -> dns.Response:
    with socket.socket(_family(server), socket.SOCK_DGRAM) as conversation:
        conversation.connect((str(server), port))
        conversation.send(packet)
        deadline = time.monotonic() + TRY_SECONDS
        while (left := deadline - time.monotonic()) > 0:
            if select.select([conversation], [], [], left)[0]:
                try:
                    return dns.parse(conversation.recv(4096), *asked)
                except dns.BadAnswer:
                    continue  # perhaps forged: the true one may follow
    raise TimeoutError("no answer")


def _over_tcp(packet: bytes, server: Network, port: int) -> bytes:
    deadline = time.monotonic() + TRY_SECONDS
    with socket.create_connection((str(server), port), timeout=TRY_SECONDS) as conversation:
        conversation.sendall(len(packet).to_bytes(2, "big") + packet)
        size = int.from_bytes(_exactly(conversation, 2, deadline), "big")
        return _exactly(conversation, size, deadline)


def _exactly(conversation: socket.socket, size: int, deadline: float) -> bytes:
    """Read so much in time: a server that sends a byte now and then would keep us for hours."""
    data = b""
    while len(data) < size:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("no answer")
        conversation.settimeout(left)
        part = conversation.recv(size - len(data))
        if not part:
            raise dns.BadAnswer("cut short")
        data += part
    return data


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(_FILE_LIMIT)
    except OSError:
        return ""


def become_nobody() -> None:
    """Give up every right, before a byte from elsewhere is read; end where that fails."""
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
    if 0 in os.getresuid() or 0 in os.getresgid():
        sys.exit("the resolver does not run as root")


def run(port: int = 53) -> None:
    """Answer each name in a line of its own, until the other end hangs up."""
    become_nobody()
    conversation = socket.socket(fileno=os.dup(0))
    writing = threading.Lock()

    def answer(name: str) -> None:
        asked = servers(_read(RESOLV))
        try:
            found = resolve(name, asked, port)
        except Exception as error:  # noqa: BLE001 - a name without an answer would wait for ever
            found = {"name": name, "error": f"not looked up: {error!r}"[:200], "addresses": []}
        reply = {"resolvers": [str(server) for server in asked], **found}
        with writing:
            conversation.sendall(json.dumps(reply).encode() + b"\n")

    with ThreadPoolExecutor(WORKERS) as workers, conversation.makefile("rb") as stream:
        while line := stream.readline(MAX_LINE):
            for name in json.loads(line):
                workers.submit(answer, parse_name(str(name)))


if __name__ == "__main__":
    run()
