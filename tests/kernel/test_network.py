"""Network rules without the helper: what they open, and no way round."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from kernel.conftest import Action, Confined, Free

pytestmark = pytest.mark.needs("landlock", "landlock-tcp", "seccomp")


@pytest.fixture
def ports() -> Iterator[tuple[int, int]]:
    """Two listeners on the loopback: the one that a rule names, and its neighbour."""
    servers = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    yield servers[0].getsockname()[1], servers[1].getsockname()[1]
    for server in servers:
        server.close()


def dial(port: int, kind: int = socket.SOCK_STREAM, protocol: int = 0) -> Action:
    return lambda: socket.socket(socket.AF_INET, kind, protocol).connect(("127.0.0.1", port))


def test_a_rule_opens_its_port_and_no_other(
    ports: tuple[int, int], free: Free, confined: Confined
) -> None:
    declared, other = ports
    rule = ("connect", f"127.0.0.1:{declared}")
    assert confined(dial(declared), rule) == "allowed"
    assert confined(dial(other), rule) == "EACCES"
    assert free(dial(other)) == "allowed"


@pytest.mark.parametrize("operation", ["receive", "send"])
def test_every_operation_opens_the_connection(
    operation: str, ports: tuple[int, int], confined: Confined
) -> None:
    assert confined(dial(ports[0]), (operation, f"http://127.0.0.1:{ports[0]}/v1")) == "allowed"


WAYS_ROUND: dict[str, Callable[[int], Action]] = {
    "MPTCP": lambda port: dial(port, protocol=262),
    "UDP": lambda port: dial(port, socket.SOCK_DGRAM),
    "ICMP": lambda _: lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM, 1),
    "raw": lambda _: lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 6),
    "sending while connecting": lambda port: (
        lambda: socket.socket().sendto(b"x", 0x20000000, ("127.0.0.1", port))
    ),
    "listening": lambda _: lambda: socket.socket().listen(),
    "binding": lambda _: lambda: socket.socket().bind(("127.0.0.1", 0)),
    "a netlink socket for audit": lambda _: lambda: socket.socket(16, socket.SOCK_RAW, 9),
}


@pytest.mark.parametrize("way", WAYS_ROUND)
def test_a_rule_for_one_port_opens_no_way_round(
    way: str, ports: tuple[int, int], free: Free, confined: Confined
) -> None:
    declared, other = ports
    verdict = confined(WAYS_ROUND[way](other), ("connect", f"127.0.0.1:{declared}"))
    assert verdict in {"EACCES", "EPERM"}
    control = free(WAYS_ROUND[way](other))
    if way in {"MPTCP", "ICMP", "raw"} and control != "allowed":
        pytest.skip(f"this host does not offer it: {control}")
    assert control == "allowed"


def test_a_rule_for_one_port_opens_no_unix_socket(
    tmp_path: Path, ports: tuple[int, int], free: Free, confined: Confined
) -> None:
    path = str(tmp_path / "socket")
    connecting = lambda: socket.socket(socket.AF_UNIX).connect(path)  # noqa: E731 - as above
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        rules = (("connect", f"127.0.0.1:{ports[0]}"), ("read", tmp_path))
        assert confined(connecting, *rules) in {"EACCES", "EPERM"}
        assert free(connecting) == "allowed"


def test_a_pair_of_datagram_sockets_reaches_nobody(
    tmp_path: Path, free: Free, confined: Confined
) -> None:
    path = str(tmp_path / "socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
        server.bind(path)

        def send() -> None:
            socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)[0].sendto(b"x", path)

        assert free(send) == "allowed"
        assert confined(send) == "EACCES"
        assert confined(send, ("connect", "127.0.0.1:80")) == "EACCES"


def test_a_declared_unix_socket_can_be_used(tmp_path: Path, free: Free, confined: Confined) -> None:
    path = str(tmp_path / "socket")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen()

        def talk() -> None:
            socket.socket(socket.AF_UNIX).connect(path)

        assert free(talk) == "allowed"
        assert confined(talk, ("read", tmp_path)) == "EACCES"
        assert confined(talk, ("modify", path)) == "allowed"
