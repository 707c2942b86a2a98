"""Many sandboxes at once: each is held, also by a helper that was killed and started again.

`OSGUARD_SANDBOXES` says how many, 2048 at most: where one user may have no more, they are the next
one's. With as many as a user may have, one more is refused.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from typing import TYPE_CHECKING

import pytest
from root.daemons import Resident, eventually
from root.lab import ALLOWED, FORBIDDEN, PORT

from democrai_osguard_helper.client import Client, HelperUnavailable
from democrai_osguard_helper.endpoints import Endpoint, parse_network
from democrai_osguard_helper.keeper import MAX_PER_USER, MAX_SANDBOXES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from root.daemons import Daemon

pytestmark = pytest.mark.needs("root", "cgroup2", "netns", "bpf", "iptables", "ipset")
_MANY = int(os.environ.get("OSGUARD_SANDBOXES", "150"))
_PATIENCE = 900.0
_NOBODY, _STRANGER = 65534, 61000
ONE = (Endpoint(parse_network(ALLOWED[4]), PORT),)


def _answers(path: str) -> bool:
    with contextlib.suppress(HelperUnavailable), Client(path, timeout=1) as client:
        client.status()
        return True
    return False


def _user(number: int) -> Callable[[], None] | None:
    """Return how the process of this number becomes its user; the first ones stay root."""

    def become() -> None:
        os.setgroups([])
        os.setgid(_NOBODY)
        os.setuid(_STRANGER + number // MAX_PER_USER)

    return become if number >= MAX_PER_USER else None


def _refused(path: str, number: int) -> bool:
    late = Resident(path, ONE, before=_user(number))
    late.end()
    return late.sandbox.startswith("!") and f"of {MAX_PER_USER} sandboxes" in late.sandbox


@pytest.fixture
def open_folder() -> Iterator[str]:
    """Return a folder where every user finds the socket."""
    with tempfile.TemporaryDirectory(prefix="osguard-") as folder:
        os.chmod(folder, 0o755)
        yield folder


def test_many_sandboxes_are_held_and_too_many_are_refused(daemon: Daemon, open_folder: str) -> None:
    daemon.socket = f"{open_folder}/helper.sock"
    daemon.start("--group", "nogroup")
    daemon.wait()
    residents: list[Resident] = []
    try:
        for number in range(_MANY):
            residents.append(Resident(daemon.socket, ONE, before=_user(number)))
            assert not residents[-1].sandbox.startswith("!"), residents[-1].sandbox
        assert _MANY < MAX_PER_USER or _refused(daemon.socket, 0)
        assert _MANY < MAX_SANDBOXES or _refused(daemon.socket, _MANY)
        daemon.kill()  # and all of them are found again
        daemon.start("--group", "nogroup")
        assert eventually(lambda: _answers(daemon.socket), _PATIENCE)
        for child in residents[:: max(1, _MANY // 16)]:
            assert child.does("tcp", ALLOWED[4], PORT) == "allowed"
            assert child.does("tcp", FORBIDDEN[4], PORT) != "allowed"
        residents.pop().end()
        with Client(daemon.socket) as client:
            assert eventually(lambda: len(client.list().sandboxes) < _MANY, _PATIENCE)
        residents.append(Resident(daemon.socket, ONE, before=_user(_MANY - 1)))
        assert not residents[-1].sandbox.startswith("!")
    finally:
        for child in residents:
            child.end()
    with Client(daemon.socket) as client:
        assert eventually(lambda: not client.list().sandboxes, _PATIENCE)
