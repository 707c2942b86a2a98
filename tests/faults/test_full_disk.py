"""A disk that is full, for real, on a small file system: nothing opens, nothing breaks."""

from __future__ import annotations

import ctypes
import errno
import os
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from approvals.cases import ADA, read
from guard.confined import confined
from root.daemons import Resident, resident
from root.lab import ALLOWED, FORBIDDEN, PORT

from democrai_osguard.approvals import ApprovalCheckFailed, ApprovalService, open_store
from democrai_osguard.audit import AuditLog, verify
from democrai_osguard.audit.log import AuditFailed
from democrai_osguard_helper.client import Client, HelperRefused
from democrai_osguard_helper.endpoints import Endpoint, parse_network
from democrai_osguard_helper.protocol import Update

if TYPE_CHECKING:
    from root.daemons import Daemon

pytestmark = pytest.mark.needs("root")
_LIBC = ctypes.CDLL(None, use_errno=True)
_NEW_MOUNTS, _PRIVATE = 0x20000, (1 << 18) | 0x4000
ONE = (Endpoint(parse_network(ALLOWED[4]), PORT),)
BOTH = (*ONE, Endpoint(parse_network(ALLOWED[6]), PORT))


def _small_disk(place: Path, size: str) -> None:
    """Put a small file system at a place, seen by this process alone."""
    options = f"size={size},mode=700".encode()
    arguments = (b"tmpfs", os.fsencode(place), b"tmpfs", 0, options)
    for failed in (
        _LIBC.unshare(_NEW_MOUNTS),
        _LIBC.mount(None, b"/", None, _PRIVATE, None),
        _LIBC.mount(*arguments),
    ):
        assert not failed, os.strerror(ctypes.get_errno())


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


@pytest.mark.parametrize("full", ["log", "store"])
def test_a_decision_on_a_full_disk_is_not_made(tmp_path: Path, full: str) -> None:
    def check() -> list[str]:
        place = tmp_path / full
        place.mkdir(mode=0o700)
        _small_disk(place, "1m")
        service = ApprovalService(
            open_store(f"sqlite://{tmp_path}/store/approvals.sqlite3"),
            audit=AuditLog(f"{tmp_path}/log"),
        )
        stands = service.register(read("/srv/a"))
        service.approve_permanently(stands.id, ADA)
        asked = service.register(read("/srv/b"))
        filler = _fill(place)
        with pytest.raises((AuditFailed, ApprovalCheckFailed)) as refused:
            _decide_much(service)
        during = service.check(read("/srv/a")).code
        filler.unlink()
        after = service.approve_permanently(asked.id, ADA).applied
        standing = service.check(read("/srv/b")).code
        service.close()
        _must_be_whole(tmp_path / "store/approvals.sqlite3")
        assert verify(f"{tmp_path}/log").sound
        return [type(refused.value).__name__, during, str(after), standing]

    name = "AuditFailed" if full == "log" else "ApprovalCheckFailed"
    assert confined(check) == [name, "permanent_approval", "True", "permanent_approval"]


def _decide_much(service: ApprovalService) -> None:
    """Decide on, since a file that is there may have room for a few more."""
    for number in range(200):
        service.approve_permanently(service.register(read(f"/srv/{number}")).id, ADA)


def _must_be_whole(path: Path) -> None:
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    connection.close()


_ON_A_SMALL_DISK = 'mkdir -p "$0" && mount -t tmpfs -o size=64k,mode=700 tmpfs "$0" && exec "$@"'


@pytest.mark.needs("cgroup2", "netns", "bpf", "iptables", "ipset")
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
