"""The helper on a file system that is full, for real: nothing opens, nothing breaks."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from root.daemons import Resident, resident
from root.lab import ALLOWED, FORBIDDEN, PORT

from democrai_osguard_helper.client import Client, HelperRefused
from democrai_osguard_helper.endpoints import Endpoint, parse_network
from democrai_osguard_helper.protocol import Update

if TYPE_CHECKING:
    from root.daemons import Daemon

pytestmark = pytest.mark.needs("root", "cgroup2", "netns", "bpf", "iptables", "ipset")
ONE = (Endpoint(parse_network(ALLOWED[4]), PORT),)
BOTH = (*ONE, Endpoint(parse_network(ALLOWED[6]), PORT))


def _fill(folder: Path) -> Path:
    """Take every block that is left."""
    filler = folder / "filler"
    descriptor = os.open(filler, os.O_CREAT | os.O_WRONLY, 0o600)
    for size in (4096, 1):
        try:
            while os.write(descriptor, b"x" * size):
                pass
        except OSError as error:
            assert error.errno == errno.ENOSPC  # noqa: PT017 - the loop ends in no other way
    os.close(descriptor)
    return filler


_ON_A_SMALL_DISK = 'mkdir -p "$0" && mount -t tmpfs -o size=64k,mode=700 tmpfs "$0" && exec "$@"'


def test_the_helper_on_a_full_disk_changes_nothing_and_holds_what_it_held(
    daemon: Daemon,
) -> None:
    state = daemon.folder / "state"
    daemon.prefix = ("unshare", "-m", "sh", "-c", _ON_A_SMALL_DISK, str(state))
    daemon.start()
    daemon.wait()
    assert daemon.process is not None
    with resident(daemon.socket, ONE) as child, Client(daemon.socket) as client:
        filler = _fill(Path(f"/proc/{daemon.process.pid}/root{state}"))
        late = Resident(daemon.socket, ONE)
        assert late.sandbox.startswith("!"), "confined, and nothing written down"
        late.end()
        with pytest.raises(HelperRefused):
            client.update(Update(child.sandbox, BOTH, ()))
        assert child.does("tcp", ALLOWED[6], PORT) != "allowed"
        assert child.does("tcp", FORBIDDEN[4], PORT) != "allowed"
        assert child.does("tcp", ALLOWED[4], PORT) == "allowed"
        filler.unlink()
        client.update(Update(child.sandbox, BOTH, ()))
        assert child.does("tcp", ALLOWED[6], PORT) == "allowed"
        with resident(daemon.socket, ONE) as another:
            assert another.does("tcp", ALLOWED[4], PORT) == "allowed"
