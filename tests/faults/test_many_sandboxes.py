"""More sandboxes than a user may have: the next one is refused, and each that is there is held."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from root.daemons import Resident, eventually
from root.lab import ALLOWED, FORBIDDEN, PORT

from democrai_osguard_helper.client import Client
from democrai_osguard_helper.endpoints import Endpoint, parse_network
from democrai_osguard_helper.keeper import MAX_PER_USER

if TYPE_CHECKING:
    from root.daemons import Daemon

pytestmark = pytest.mark.needs("root", "cgroup2", "netns", "bpf", "iptables", "ipset")
ONE = (Endpoint(parse_network(ALLOWED[4]), PORT),)


def test_a_thousand_sandboxes_are_held_and_one_more_is_refused(
    daemon: Daemon,
) -> None:
    daemon.start()
    daemon.wait()
    residents: list[Resident] = []
    try:
        for _ in range(MAX_PER_USER):
            residents.append(Resident(daemon.socket, ONE))
            assert not residents[-1].sandbox.startswith("!"), residents[-1].sandbox
        late = Resident(daemon.socket, ONE)
        assert f"of {MAX_PER_USER} sandboxes" in late.sandbox
        late.end()
        daemon.kill()  # and all of them are found again
        daemon.start()
        daemon.wait()
        for child in residents[:: MAX_PER_USER // 16]:
            assert child.does("tcp", ALLOWED[4], PORT) == "allowed"
            assert child.does("tcp", FORBIDDEN[4], PORT) != "allowed"
        residents.pop().end()
        with Client(daemon.socket) as client:
            assert eventually(lambda: len(client.list().sandboxes) < MAX_PER_USER, 60)
        residents.append(Resident(daemon.socket, ONE))
        assert not residents[-1].sandbox.startswith("!")
    finally:
        for child in residents:
            child.end()
    with Client(daemon.socket) as client:
        assert eventually(lambda: not client.list().sandboxes, 120)
