"""Whom the network rules of a plan let a command reach: foretold, to explain a refusal."""

from __future__ import annotations

import ipaddress

from . import landlock
from .endpoints import LOCALHOST
from .plan import CONNECT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .network_acts import Reach
    from .plan import Plan


class Reaching:
    """The endpoints of a plan, and what holds the command to them."""

    def __init__(self, plan: Plan) -> None:
        self._endpoints = plan.endpoints
        self._by_address = plan.by_address
        self._ports = {port for port, rights in plan.ports if rights & landlock.CONNECT_TCP}
        by_port = plan.handled.network & landlock.CONNECT_TCP
        self._by_port = bool(by_port) and CONNECT not in plan.brokered  # which tells by itself

    def covers(self, reach: Reach) -> bool:
        """Tell whether a rule names this address and port."""
        return any(
            port in {None, reach.port} and is_in(host, reach.host) is True
            for host, port in self._endpoints
        )

    def refuses(self, reach: Reach) -> bool:
        """Tell whether the kernel refuses the peer; a name may mean any address, so it does not."""
        if self._by_port and reach.port not in self._ports:
            return True
        return self._by_address and not any(
            port in {None, reach.port} and is_in(host, reach.host) is not False
            for host, port in self._endpoints
        )


def is_in(host: str, address: str) -> bool | None:
    """Tell whether the address is meant by the host; None where that is a name."""
    own = ipaddress.ip_address(address)
    if host == LOCALHOST:
        return own.is_loopback
    try:
        network = ipaddress.ip_network(host, strict=False)
    except ValueError:
        return None
    return own in network or (network.is_loopback and own.is_loopback)
