"""Connections that the broker judges and dials: by address, on the command's own socket."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from kernel.loopback import FAMILIES, SECONDS, dial, opened, place, server
from kernel.techniques import LIBC

if TYPE_CHECKING:
    from pathlib import Path

    from kernel.conftest import Action, Confined, Free, Launch

pytestmark = pytest.mark.needs("landlock", "landlock-tcp", "seccomp")

UNROUTED = "192.0.2.1"  # TEST-NET-1
THIS_MACHINE = "0.0.0.0"  # noqa: S104 - to dial
CAP_NET_ADMIN = 12


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM])
@pytest.mark.parametrize("blocking", [True, False])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_connection_goes_where_a_rule_leads_and_nowhere_else(
    family: int, blocking: bool, kind: int, free: Free, confined: Confined
) -> None:
    with server(family, kind) as (own, port), server(family, kind) as (_, other):
        rule = ("connect", place(family, port))
        assert confined(dial(family, port, blocking=blocking, kind=kind), rule) == "allowed"
        peer = own.accept()[0] if kind == socket.SOCK_STREAM else own
        assert peer.recv(100) == b"hello"
        if peer is not own:
            peer.close()
        refused = dial(family, other, blocking=blocking, kind=kind)
        assert confined(refused, rule) == "EACCES"
        assert free(refused) == "allowed"


@pytest.mark.parametrize("family", FAMILIES)
def test_nobody_listens_is_said_as_ever(family: int, free: Free, confined: Confined) -> None:
    with server(family) as (_, port):
        pass
    for blocking in (True, False):
        act = dial(family, port, blocking=blocking)
        assert confined(act, ("connect", place(family, port))) == free(act) == "ECONNREFUSED"


def test_other_writings_of_an_address_are_that_address(free: Free, confined: Confined) -> None:
    def to(family: int, host: str, port: int) -> Action:
        return lambda: socket.socket(family).connect((host, port))

    with server(socket.AF_INET) as (_, port), server(socket.AF_INET) as (_, other):
        rule = ("connect", f"127.0.0.1:{port}")
        for family, host in ((socket.AF_INET6, "::ffff:127.0.0.1"), (socket.AF_INET, THIS_MACHINE)):
            assert confined(to(family, host, port), rule) == "allowed"
            assert confined(to(family, host, other), rule) == "EACCES"
            assert free(to(family, host, other)) == "allowed"
        elsewhere = ("connect", f"192.0.2.1:{port}")
        assert confined(to(socket.AF_INET6, "::ffff:127.0.0.1", port), elsewhere) == "EACCES"
        assert confined(to(socket.AF_INET, THIS_MACHINE, port), elsewhere) == "EACCES"


def test_a_second_connect_and_a_disconnect_are_as_ever(free: Free, confined: Confined) -> None:
    with server(socket.AF_INET) as (_, port), server(socket.AF_INET, socket.SOCK_DGRAM) as (_, udp):

        def act() -> None:
            client = opened(port)
            assert client.connect_ex(("127.0.0.1", port)) == errno.EISCONN
            datagram = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            datagram.connect(("127.0.0.1", udp))
            unspecified = struct.pack("=H14x", socket.AF_UNSPEC)
            assert LIBC.connect(datagram.fileno(), unspecified, len(unspecified)) == 0
            with pytest.raises(OSError, match="Destination address required"):
                datagram.send(b"x")
            slow = socket.socket()
            slow.setblocking(False)
            assert slow.connect_ex(("127.0.0.1", port)) == errno.EINPROGRESS
            select.select([], [slow], [], SECONDS)
            assert slow.connect_ex(("127.0.0.1", port)) == 0
            assert slow.connect_ex(("127.0.0.1", port)) == errno.EISCONN
            short = struct.pack("=HH", socket.AF_INET, port)
            assert LIBC.connect(socket.socket().fileno(), short, len(short)) == -1
            assert ctypes.get_errno() == errno.EINVAL

        rules = [("connect", f"127.0.0.1:{number}") for number in (port, udp)]
        assert free(act) == "allowed"
        assert confined(act, *rules) == "allowed"


def test_what_is_no_socket_is_an_error(confined: Confined) -> None:
    def act(number: int) -> Action:
        address = struct.pack("=H2s4s8x", socket.AF_INET, b"\0\x50", b"\x7f\0\0\1")

        def connect() -> None:
            if LIBC.connect(number, address, len(address)) == -1:
                raise OSError(ctypes.get_errno(), "")

        return connect

    assert confined(act(999), ("connect", "127.0.0.1:80")) == "EBADF"
    assert confined(act(1), ("connect", "127.0.0.1:80")) == "ENOTSOCK"


def test_a_broker_that_is_killed_lets_nothing_through() -> None:
    with server(socket.AF_INET) as (own, port):
        script = (
            "import os, signal, socket, sys\nprint(os.getppid(), flush=True)\nsys.stdin.read(1)\n"
            f"socket.create_connection(('127.0.0.1', {port})); print('connected', flush=True)"
        )
        command = [sys.executable, "-I", "-m", "democrai_osguard_launcher"]
        rules = ["--connect", f"127.0.0.1:{port}", "--", sys.executable, "-I", "-c", script]
        with subprocess.Popen(
            [*command, *rules], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as launched:
            assert launched.stdin is not None
            assert launched.stdout is not None
            broker = int(launched.stdout.readline())
            assert broker == launched.pid
            os.kill(broker, signal.SIGKILL)
            with contextlib.suppress(BrokenPipeError):
                os.write(launched.stdin.fileno(), b"x")  # past a buffer that closing would flush
            assert launched.stdout.read() == ""
        own.settimeout(0)
        with pytest.raises(BlockingIOError):
            own.accept()


def test_the_receipt_has_tried_the_broker(launch: Launch, tmp_path: Path) -> None:
    file = tmp_path / "receipt.json"
    assert launch("--connect", f"{UNROUTED}:80", "--receipt", file, "--", "true").returncode == 0
    tried = {each["act"]: each["outcome"] for each in json.loads(file.read_text())["tried"]}
    assert tried["TCP to an address that no rule names"] == "EACCES"
    assert tried[f"UDP towards {UNROUTED}"] == "allowed"


def test_an_ordinary_user_has_the_same_broker(confined: Confined) -> None:
    uid = 65534 if os.geteuid() == 0 else None
    with server(socket.AF_INET) as (_, port), server(socket.AF_INET) as (_, other):
        rule = ("connect", f"127.0.0.1:{port}")
        for blocking in (True, False):
            act = dial(socket.AF_INET, port, blocking=blocking)
            assert confined(act, rule, uid=uid) == "allowed"
            refused = dial(socket.AF_INET, other, blocking=blocking)
            assert confined(refused, rule, uid=uid) == "EACCES"


def test_a_caller_that_hides_its_memory_connects_to_nobody(confined: Confined) -> None:
    uid = 65534 if os.geteuid() == 0 else None
    with server(socket.AF_INET) as (_, port):

        def act() -> None:
            LIBC.prctl(4, 0)
            opened(port)

        assert confined(act, ("connect", f"127.0.0.1:{port}"), uid=uid) in {"EACCES", "EPERM"}


@pytest.mark.needs("root")
def test_the_broker_of_root_has_no_rights_over_the_network(confined: Confined) -> None:
    """A netlink message that the broker sends must not be able to do more than the command."""

    def act() -> None:
        with contextlib.suppress(OSError):  # it answers only once it has given them up
            socket.create_connection(("127.0.0.1", 80))
        with open(f"/proc/{os.getppid()}/status", encoding="utf-8") as file:
            (line,) = (line for line in file if line.startswith("CapEff"))
        assert not int(line.split()[1], 16) & 1 << CAP_NET_ADMIN, line

    assert confined(act, ("connect", "127.0.0.1:80"), ("read", "/proc")) == "allowed"
