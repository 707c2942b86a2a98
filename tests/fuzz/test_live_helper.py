"""A running helper is sent nonsense: it answers or hangs up, lives on, and holds what it held."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest
from fuzz.targets import messages
from guard.confined import confined
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from root.daemons import eventually, resident
from root.lab import ALLOWED, FORBIDDEN, PORT

from democrai_osguard_helper import protocol
from democrai_osguard_helper.client import Client
from democrai_osguard_helper.endpoints import Endpoint, parse_network

if TYPE_CHECKING:
    from root.daemons import Daemon

pytestmark = pytest.mark.needs("root", "cgroup2", "netns", "bpf", "iptables", "ipset")
ONE = (Endpoint(parse_network(ALLOWED[4]), PORT),)
_SECONDS = 60
_EXAMPLES = 60

_framed = messages.map(lambda payload: len(payload).to_bytes(protocol.HEADER, "big") + payload)
_streams = st.lists(_framed, max_size=3).map(b"".join) | st.binary(max_size=40)


def _sent(path: str, stream: bytes) -> list[str]:
    """Send bytes, end the sending side, and return what came back, read as replies."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_SECONDS)
        connection.connect(path)
        connection.sendall(stream)
        connection.shutdown(socket.SHUT_WR)
        answer = b""
        while piece := connection.recv(65536):
            answer += piece
    replies = []
    while answer:
        length = protocol.frame_length(answer[: protocol.HEADER])
        payload, answer = answer[protocol.HEADER :][:length], answer[protocol.HEADER + length :]
        replies.append(type(protocol.parse_reply(payload)).__name__)
    return replies


def test_nonsense_is_answered_or_hung_up_on(daemon: Daemon) -> None:
    daemon.start()
    daemon.wait()
    assert daemon.process is not None
    seen: set[str] = set()

    @settings(
        max_examples=_EXAMPLES, derandomize=True, database=None, deadline=None,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(_streams)
    def feed(stream: bytes) -> None:
        # From a fork: a message that makes sense may confine whoever sends it.
        seen.update(confined(lambda: _sent(daemon.socket, stream)))

    with resident(daemon.socket, ONE) as child:
        feed()
        assert daemon.process.poll() is None
        assert child.does("tcp", ALLOWED[4], PORT) == "allowed"
        assert child.does("tcp", FORBIDDEN[4], PORT) != "allowed"
    assert "Refused" in seen
    with Client(daemon.socket) as client:
        assert eventually(lambda: not client.list().sandboxes, _SECONDS)
