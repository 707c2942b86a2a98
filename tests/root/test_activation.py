"""Started by a service manager: its socket is taken, it is told when we are ready and alive."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
from typing import TYPE_CHECKING, Final

import pytest
from root.daemons import HELPER, resident
from root.lab import ALLOWED, FORBIDDEN, PORT

from democrai_osguard_helper.endpoints import Endpoint, parse_network

if TYPE_CHECKING:
    from root.daemons import Daemon

pytestmark = pytest.mark.needs("bpf", "iptables", "ipset")
ONE: Final = (Endpoint(parse_network(ALLOWED[4]), PORT),)
# What systemd does between fork and exec: the socket is descriptor 3, the pid is our own.
_MANAGER: Final = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.environ.update(LISTEN_FDS="1", LISTEN_PID=str(os.getpid()))
os.environ.update(WATCHDOG_USEC="300000", WATCHDOG_PID=str(os.getpid()))
os.execv(sys.executable, [sys.executable, "-I", "-c", *sys.argv[2:]])
"""
_HELPER: Final = """
import sys
sys.path.insert(0, sys.argv[1])
from democrai_osguard_helper.main import serve
sys.exit(serve(sys.argv[2:]))
"""


def test_a_manager_hands_its_socket_over_and_hears_from_us(daemon: Daemon) -> None:
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ear,
    ):
        listener.bind(daemon.socket)
        listener.listen()
        os.chmod(daemon.socket, 0o620)  # whatever the manager chose stays
        ear.bind(str(daemon.folder / "notify"))
        ear.settimeout(60)
        names = ["--instance", daemon.instance, "--state", str(daemon.folder / "state")]
        script = [sys.executable, "-c", _MANAGER, str(listener.fileno()), _HELPER, str(HELPER)]
        daemon.process = subprocess.Popen(
            [*script, *names],
            pass_fds=[listener.fileno()],
            env={**os.environ, "NOTIFY_SOCKET": str(daemon.folder / "notify")},
        )
        assert ear.recv(4096).decode() == "READY=1\nSTATUS=every layer holds"
        assert [ear.recv(4096) for _ in range(2)] == [b"WATCHDOG=1"] * 2
        with resident(daemon.socket, ONE) as child:
            assert child.does("tcp", ALLOWED[4], PORT) == "allowed"
            assert child.does("tcp", FORBIDDEN[4], PORT) == "Operation not permitted"
        daemon.process.terminate()
        while (said := ear.recv(4096)) == b"WATCHDOG=1":
            continue
        assert said == b"STOPPING=1"
        assert daemon.process.wait(60) == 0
        assert stat.S_IMODE(os.stat(daemon.socket).st_mode) == 0o620
