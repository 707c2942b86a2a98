"""What is tried of the network rules. No act sends a packet, whatever holds or does not.

Where the broker dials it is the broker that is tried: the calls wait for it like the command's.

A TCP connection to the broadcast address never leaves: the kernel has no route for it. Before it
finds that out it asks Landlock about the port and the helper's programs about the address. A UDP
socket that is connected only remembers where to send to. Imported only with network rules.
"""

from __future__ import annotations

import ipaddress

from . import landlock
from .endpoints import LOCALHOST, is_address
from .plan import CONNECT
from .trial import ALLOWED, REFUSED, Futile, Trial, refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator

    from .plan import Plan
else:
    import _socket as socket

# The helper knows this address as the one of trials, and asks nobody about it.
_NOWHERE = "255.255.255.255"
_NO_ROUTE = ("ENETUNREACH", "EHOSTUNREACH", "EADDRNOTAVAIL", "EAFNOSUPPORT")
_PORTS = range(1, 1 << 16)
_ANY_PORT = 9  # discard
_CGROUP = "/proc/self/cgroup"


def network_trials(plan: Plan, sandbox: str | None) -> Iterator[Trial]:
    """Yield what Landlock holds of the ports, and the helper of the addresses."""
    if CONNECT in plan.brokered:
        yield from _address_trials(plan, by="EACCES")
    yield from _port_trials(plan)
    if plan.by_address:
        act = "being in the sandbox that the helper made"
        yield Trial("network", act, ALLOWED, _whereabouts(sandbox))
        yield from _address_trials(plan)


def _port_trials(plan: Plan) -> Iterator[Trial]:
    opened = _opened_ports(plan)
    if plan.handled.network & landlock.CONNECT_TCP and CONNECT not in plan.brokered:
        closed = next(port for port in _PORTS if port not in opened)
        yield from _connection(closed, f"port {closed}").tried(REFUSED)
    if not plan.by_address:  # else the helper has the last word
        for port in opened[:1]:
            yield from _connection(port, f"port {port}").tried(ALLOWED)
    if plan.handled.network & landlock.BIND_TCP:
        yield refused("network", "a TCP port of one's own", _bind)


def _address_trials(plan: Plan, by: str = "EPERM") -> Iterator[Trial]:
    """Yield one address that no rule names, and one that a rule does."""
    opened = _opened_ports(plan)
    places = [_place(host, port) for host, port in plan.endpoints]
    networks = [network for network, _ in filter(None, places)]
    if not any(ipaddress.ip_address(_NOWHERE) in network for network in networks):
        port = next(iter(opened), _ANY_PORT)
        act = _connection(port, "an address that no rule names", by=by)
        yield from act.tried(REFUSED)
    if places and places[0]:
        yield from _aim(str(places[0][0].network_address), places[0][1], by).tried(ALLOWED)


def _opened_ports(plan: Plan) -> list[int]:
    return [port for port, rights in plan.ports if rights & landlock.CONNECT_TCP]


def _connection(port: int, whereto: str, *, by: str = "EACCES") -> Futile:
    def do() -> None:
        connection = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 0)
        try:
            connection.connect((_NOWHERE, port))
        finally:
            connection.close()

    return Futile("network", f"TCP to {whereto}", do, _NO_ROUTE, by)


def _aim(address: str, port: int | None, by: str) -> Futile:
    def do() -> None:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        connection = socket.socket(family, socket.SOCK_DGRAM, 0)
        try:
            connection.connect((address, port or _ANY_PORT))
        finally:
            connection.close()

    return Futile("network", f"UDP towards {address}", do, _NO_ROUTE, by)


def _bind() -> None:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 0)
    try:
        listener.bind(("127.0.0.1", 0))
    finally:
        listener.close()


def _place(
    host: str, port: int | None
) -> tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, int | None] | None:
    text = "127.0.0.0/8" if host == LOCALHOST else host
    return (ipaddress.ip_network(text, strict=False), port) if is_address(text) else None


def _whereabouts(sandbox: str | None) -> str:
    """Say whether this process is in the sandbox of that name: the helper moved it, or did not."""
    with open(_CGROUP, encoding="utf-8") as file:
        own = next((line.strip() for line in file if line.startswith("0::")), "")
    return ALLOWED if sandbox and own.endswith(f"/{sandbox}") else "outside of it"
