"""Many sandboxes at once: each is held, also by a helper that was killed and started again.

`OSGUARD_SANDBOXES` says how many; with as many as a user may have, one more is refused.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

import pytest
from root.daemons import Resident, eventually
from root.lab import ALLOWED, FORBIDDEN, PORT

from democrai_osguard_helper.client import Client, HelperUnavailable
from democrai_osguard_helper.endpoints import Endpoint, parse_network
from democrai_osguard_helper.keeper import MAX_PER_USER

if TYPE_CHECKING:
    from root.daemons import Daemon

pytestmark = pytest.mark.needs("root", "cgroup2", "netns", "bpf", "iptables", "ipset")
_MANY = int(os.environ.get("OSGUARD_SANDBOXES", "150"))
_PATIENCE = 300.0
ONE = (Endpoint(parse_network(ALLOWED[4]), PORT),)


def _answers(path: str) -> bool:
    with contextlib.suppress(HelperUnavailable), Client(path, timeout=1) as client:
        client.status()
        return True
    return False


def test_many_sandboxes_are_held_and_too_many_are_refused(
    daemon: Daemon,
) -> None:
    daemon.start()
    daemon.wait()
    residents: list[Resident] = []
    try:
        for _ in range(_MANY):
            residents.append(Resident(daemon.socket, ONE))
            assert not residents[-1].sandbox.startswith("!"), residents[-1].sandbox
        if _MANY >= MAX_PER_USER:
            late = Resident(daemon.socket, ONE)
            assert f"of {MAX_PER_USER} sandboxes" in late.sandbox
            late.end()
        daemon.kill()  # and all of them are found again
        daemon.start()
        assert eventually(lambda: _answers(daemon.socket), _PATIENCE)
        for child in residents[:: max(1, _MANY // 16)]:
            assert child.does("tcp", ALLOWED[4], PORT) == "allowed"
            assert child.does("tcp", FORBIDDEN[4], PORT) != "allowed"
        residents.pop().end()
        with Client(daemon.socket) as client:
            assert eventually(lambda: len(client.list().sandboxes) < _MANY, _PATIENCE)
        residents.append(Resident(daemon.socket, ONE))
        assert not residents[-1].sandbox.startswith("!")
    finally:
        for child in residents:
            child.end()
    with Client(daemon.socket) as client:
        assert eventually(lambda: not client.list().sandboxes, _PATIENCE)
