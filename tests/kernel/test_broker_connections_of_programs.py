"""Real programs reach what a rule names, and nobody else."""

from __future__ import annotations

import socket
import sys
import threading
from typing import TYPE_CHECKING

import pytest
from host_features import require
from kernel.loopback import server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kernel.conftest import Launch

pytestmark = pytest.mark.needs("landlock", "landlock-tcp", "seccomp")

PYTHON = "import urllib.request as r; print(r.urlopen('http://127.0.0.1:{port}/').read().decode())"
NODE = "fetch('http://127.0.0.1:{port}/').then(r => r.text()).then(console.log)"
PROGRAMS: dict[str, list[str]] = {
    "python": [sys.executable, "-I", "-c", PYTHON],
    "curl": ["curl", "-sS", "--noproxy", "*", "http://127.0.0.1:{port}/"],
    "node": ["node", "-e", NODE],
}


@pytest.fixture
def page() -> Iterator[int]:
    """Serve a page to whoever comes."""
    with server(socket.AF_INET) as (own, port):

        def serve() -> None:
            while True:
                try:
                    peer, _ = own.accept()
                except OSError:
                    return
                with peer:
                    peer.recv(4096)
                    peer.sendall(b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello")

        thread = threading.Thread(target=serve)
        thread.start()
        yield port
        own.shutdown(socket.SHUT_RDWR)
        thread.join()


@pytest.mark.parametrize("program", PROGRAMS)
def test_programs_reach_what_a_rule_names(
    program: str, page: int, launch: Launch, tmp_path: Path
) -> None:
    if program != "python":
        require(program)
    words = [word.format(port=page) if "{port}" in word else word for word in PROGRAMS[program]]
    environment = {"HOME": str(tmp_path), "no_proxy": "*"}
    reached = launch("--connect", f"127.0.0.1:{page}", "--", *words, environment=environment)
    assert (reached.stdout.strip(), reached.returncode) == ("hello", 0), reached.stderr
    other = launch("--connect", "192.0.2.1:80", "--", *words, environment=environment)
    assert "hello" not in other.stdout
    assert other.returncode != 0
