"""A helper or a database that no longer answers: closed after a while, with a line that says so."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from approvals.cases import ADA, read
from root.daemons import eventually, resident
from root.lab import ALLOWED, FORBIDDEN, PORT

from democrai_osguard.approvals import ApprovalCheckFailed, ApprovalService, open_store
from democrai_osguard_helper.client import Client, HelperUnavailable
from democrai_osguard_helper.endpoints import Endpoint, parse_network
from democrai_osguard_helper.protocol import Update

if TYPE_CHECKING:
    from approvals.postgres_server import PostgresServer
    from root.daemons import Daemon

needs_helper = pytest.mark.needs(
    "root", "cgroup2", "netns", "bpf", "iptables", "ipset", "landlock-tcp"
)
ONE = (Endpoint(parse_network(ALLOWED[4]), PORT),)
BOTH = (*ONE, Endpoint(parse_network(ALLOWED[6]), PORT))


def _launch(path: str, mark: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "democrai_osguard_launcher", f"--connect={ALLOWED[4]}:{PORT}",
               f"--create={mark.parent}", "--", "sh", "-c", f"echo ran > {mark}"]  # fmt: skip
    return subprocess.run(
        command, env={**os.environ, "DEMOCRAI_OS_HELPER_SOCKET": path}, capture_output=True,
        text=True, check=False, timeout=120,
    )  # fmt: skip


@needs_helper
def test_a_frozen_helper_means_no_launch_and_opens_nothing(
    daemon: Daemon,
    tmp_path: Path,
) -> None:
    daemon.start()
    daemon.wait()
    assert daemon.process is not None
    control = _launch(daemon.socket, tmp_path / "control")
    assert (control.returncode, (tmp_path / "control").exists()) == (0, True), control.stderr
    with resident(daemon.socket, ONE) as child:
        daemon.process.send_signal(signal.SIGSTOP)
        try:
            refused = _launch(daemon.socket, tmp_path / "mark")
            with pytest.raises(HelperUnavailable), Client(daemon.socket, timeout=1) as client:
                client.update(Update(child.sandbox, BOTH, ()))
            assert child.does("tcp", FORBIDDEN[4], PORT) != "allowed"
            assert child.does("tcp", ALLOWED[4], PORT) == "allowed"
        finally:
            daemon.process.send_signal(signal.SIGCONT)
        assert refused.returncode == 125
        assert len(refused.stderr.splitlines()) == 1
        assert "the helper did not hold the network rules: timed out" in refused.stderr
        assert not (tmp_path / "mark").exists()
        # What it reads once it goes on comes from processes that are gone.
        with Client(daemon.socket) as client:
            assert eventually(lambda: len(client.list().sandboxes) == 1, 60)
            assert _launch(daemon.socket, tmp_path / "again").returncode == 0


def _processes(server: PostgresServer) -> list[int]:
    first = int((server.folder / "data/postmaster.pid").read_text().split()[0])
    children = Path(f"/proc/{first}/task/{first}/children").read_text()
    return [first, *map(int, children.split())]


def test_a_frozen_database_leaves_access_closed_and_says_so(postgres: PostgresServer) -> None:
    service = ApprovalService(open_store(postgres.fresh_url()))
    service.approve_permanently(service.register(read("/srv/a")).id, ADA)
    waiting = service.register(read("/srv/b"))
    assert service.check(read("/srv/a")).code == "permanent_approval"
    stopped = _processes(postgres)
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    try:
        for act in (
            lambda: service.check(read("/srv/a")),
            lambda: service.approve_permanently(waiting.id, ADA),
            lambda: service.store.wait(0, 1),
        ):
            with pytest.raises(ApprovalCheckFailed, match="cannot be reached or gave up"):
                act()
    finally:
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
    assert service.check(read("/srv/a")).code == "permanent_approval"
    assert service.approve_permanently(waiting.id, ADA).agrees
    service.close()
