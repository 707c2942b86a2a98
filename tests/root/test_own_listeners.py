"""What a sandbox itself listens on is open to it: that socket, and no other at the same place."""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import struct
import subprocess
import threading
import time
from typing import TYPE_CHECKING, Final

import pytest
from root import attempts
from root.holding import holding
from root.lab import ALLOWED, PATIENCE, PORT, unshare_network, verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from root.checks import Held

    from democrai_osguard_helper.cgroups import Tree

LOOPBACK: Final = ("127.0.0.1", "::1")
SHARED: Final = 9009
_CHOOSE: Final = 51  # SO_ATTACH_REUSEPORT_CBPF


@pytest.fixture(
    params=[
        pytest.param("bpf", marks=pytest.mark.needs("bpf")),
        pytest.param("both", marks=pytest.mark.needs("bpf", "iptables", "ipset")),
    ]
)
def held(request: pytest.FixtureRequest, tree: Tree) -> Iterator[Held]:
    """Return a box that programs hold, alone or with rules beside them."""
    request.getfixturevalue("network")
    with holding(request.param, tree) as found:
        yield found


def _family(place: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in place else socket.AF_INET


def _listen(place: str, port: int = 0, *, shared: bool = False) -> socket.socket:
    return socket.create_server((place, port), family=_family(place), reuse_port=shared)


def _say_ok(listener: socket.socket) -> None:
    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                client.send(b"ok")
                client.close()

    threading.Thread(target=serve, daemon=True).start()


def _beside(work: Callable[[], None], attempt: Callable[[], bytes]) -> bytes:
    """Attempt something while a child keeps what it made."""
    ready, done = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            work()
            os.write(ready[1], b"x")
            os.close(done[1])
            os.read(done[0], 1)
        finally:
            os._exit(0)
    os.close(ready[1])
    try:
        assert os.read(ready[0], 1) == b"x", "the child could not do its part"
        return attempt()
    finally:
        os.close(done[1])
        os.waitpid(pid, 0)


def _listen_elsewhere(place: str) -> None:
    unshare_network()
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    _kept.append(_listen(place, PORT))


_kept: list[socket.socket] = []


@pytest.mark.parametrize("place", LOOPBACK)
def test_a_listener_in_another_namespace_opens_nothing_here(held: Held, place: str) -> None:
    knock = lambda: attempts.tcp(place)  # noqa: E731
    trick = lambda: _beside(lambda: _listen_elsewhere(place), knock)  # noqa: E731
    assert verdict(None, trick) == "allowed"
    assert verdict(held.box, trick) == "EPERM"


@pytest.mark.parametrize("place", LOOPBACK)
def test_a_listener_is_open_within_the_namespace_that_it_is_in(held: Held, place: str) -> None:
    def action() -> bytes:
        _listen_elsewhere(place)
        _say_ok(_kept[-1])
        return attempts.tcp(place)

    assert verdict(held.box, action) == "allowed"


@pytest.mark.parametrize("place", LOOPBACK)
@pytest.mark.parametrize("everywhere", [True, False], ids=["every address", "the same"])
@pytest.mark.parametrize("elsewhere", [True, False], ids=["from another address", "from there"])
def test_a_stranger_that_shares_the_port_is_not_reached(
    held: Held, place: str, *, everywhere: bool, elsewhere: bool
) -> None:
    source = ALLOWED[6 if ":" in place else 4] if elsewhere else place
    stranger = _listen(place, SHARED, shared=True)
    _say_ok(stranger)
    any_place = "::" if ":" in place else "0.0.0.0"  # noqa: S104 - a listener of the test

    def trick() -> bytes:
        mine = any_place if everywhere else place
        # Of several that share a port the kernel takes one or another.
        _kept.extend(_listen(mine, SHARED, shared=True) for _ in range(8))
        return knock(24)

    def knock(times: int) -> bytes:
        for _ in range(times):
            with contextlib.suppress(TimeoutError), socket.socket(_family(place)) as talk:
                talk.settimeout(0.1)
                talk.bind((source, 0))
                talk.connect((place, SHARED))
                if talk.recv(64) == b"ok":
                    return b"ok"
        return b""

    with stranger:
        assert verdict(None, lambda: knock(24)) == "allowed"
        assert verdict(held.box, trick) in {"EPERM", "silent"}


def test_a_stranger_is_not_reached_by_a_filter_that_chooses_it(held: Held) -> None:
    stranger = _listen("127.0.0.1", SHARED, shared=True)
    stranger.setsockopt(socket.IPPROTO_TCP, socket.TCP_FASTOPEN, 16)
    _say_ok(stranger)
    code = struct.pack("=HBBI", 6, 0, 0, 0)  # return 0: the first of them

    def trick(*, early: bool) -> bytes:
        own = _listen("127.0.0.1", SHARED, shared=True)
        _kept.extend(_listen("127.0.0.1", SHARED, shared=True) for _ in range(7))
        filters = ctypes.create_string_buffer(code, len(code))
        head = struct.pack("@HP", 1, ctypes.addressof(filters))
        own.setsockopt(socket.SOL_SOCKET, _CHOOSE, head)
        for _ in range(12):
            with contextlib.suppress(TimeoutError), socket.socket() as talk:
                talk.settimeout(0.2)
                if early:
                    with contextlib.suppress(BlockingIOError):  # the answer is waited for below
                        talk.sendto(b"early", socket.MSG_FASTOPEN, ("127.0.0.1", SHARED))
                else:
                    talk.connect(("127.0.0.1", SHARED))
                if talk.recv(64) == b"ok":
                    return b"ok"
        return b""

    with stranger:
        for early in (False, True):
            assert verdict(None, lambda e=early: trick(early=e)) == "allowed"  # type: ignore[misc]
            said = verdict(held.box, lambda e=early: trick(early=e))  # type: ignore[misc]
            assert said in {"EPERM", "silent"}


def test_one_of_two_that_share_a_port_may_close(held: Held) -> None:
    def action() -> bytes:
        one = _listen("127.0.0.1", shared=True)
        place = one.getsockname()
        two = _listen(*place, shared=True)
        two.close()
        _say_ok(one)
        said = attempts.tcp(*place)
        one.shutdown(socket.SHUT_RDWR)
        with contextlib.suppress(PermissionError):
            attempts.tcp(*place)
            return b"the port is still taken for its own"
        return said

    assert verdict(held.box, action) == "allowed"


@pytest.mark.parametrize("place", LOOPBACK)
def test_a_listener_answers_who_comes_from_outside(held: Held, place: str) -> None:
    ours, theirs = socket.socketpair()

    def serve() -> bytes:
        with _listen(place) as listener:
            theirs.send(struct.pack("=H", listener.getsockname()[1]))
            client, _ = listener.accept()
            with client:
                client.settimeout(PATIENCE)
                client.recv(64)
                client.send(b"ok")
                return client.recv(64)

    said: list[str] = []
    runner = threading.Thread(target=lambda: said.append(verdict(held.box, serve)))
    with ours, theirs:
        runner.start()
        (port,) = struct.unpack("=H", ours.recv(2))
        with socket.create_connection((place, port), timeout=PATIENCE) as talk:
            talk.send(b"hello")
            assert talk.recv(64) == b"ok"
            talk.send(b"ok")
        runner.join()
    assert said == ["allowed"]


@pytest.mark.parametrize("first", ["one", "other"])
def test_an_own_connection_ends_on_both_sides(held: Held, first: str) -> None:
    def action() -> bytes:
        with _listen("127.0.0.1") as listener:
            ends = {"one": socket.create_connection(listener.getsockname(), timeout=PATIENCE)}
            ends["other"], _ = listener.accept()
            ports = {end.getsockname()[1] for end in ends.values()}
            ends.pop(first).close()
            (last,) = ends.values()
            last.settimeout(PATIENCE)
            last.recv(64)
            last.close()
        return b"ok" if not _waiting(ports) else b"a side still waits for the other"

    assert verdict(held.box, action) == "allowed"


def _waiting(ports: set[int]) -> bool:
    """Tell whether a socket of these ports still says goodbye."""
    time.sleep(0.5)
    with open("/proc/net/tcp", encoding="ascii") as file:
        rows = [line.split() for line in file.readlines()[1:]]
    return any(
        int(row[1].split(":")[1], 16) in ports and row[3] in {"04", "09", "0B"} for row in rows
    )
