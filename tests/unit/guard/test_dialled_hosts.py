"""The host that is judged is the one that is looked up and dialled."""

from __future__ import annotations

import _socket
import asyncio
import http.client
import http.server
import socket
import sys
import urllib.request
from typing import Any

import httpx
import pytest
from guard.confined import confined

from democrai_osguard.guard import process_guard_context

_SHARP, _JUDGED, _OTHER = "fa\u00df.example", "xn--fa-hia.example", "fass.example"


def _recorded(act: Any) -> Any:  # noqa: ANN401 - whatever the act is
    """Return which names reach the C library, or the refusal, where the sharp name is allowed."""

    def check() -> object:
        seen: list[object] = []

        def look_up(host: Any, *_args: object, **_named: object) -> object:  # noqa: ANN401 - a host
            sys.audit("socket.getaddrinfo", host, 80, 0, 0, 0)
            seen.append(host.encode("idna").decode() if isinstance(host, str) else host.decode())
            return [(2, 1, 6, "", ("192.0.2.1", 80))]

        vars(_socket)["getaddrinfo"] = look_up  # nothing leaves
        with process_guard_context("m", "module", allowed_targets=[_SHARP]):
            try:
                act()
            except (PermissionError, ValueError) as error:
                return str(error).partition(":")[0]
        return seen

    return confined(check)


def test_the_interpreter_s_codec_has_another_host() -> None:
    assert _SHARP.encode("idna") == _OTHER.encode()  # the control


def test_a_name_is_looked_up_as_it_is_judged() -> None:
    assert _recorded(lambda: socket.getaddrinfo(_SHARP, 80)) == [_JUDGED]


@pytest.mark.parametrize("host", [_SHARP, _SHARP.encode()])
def test_past_the_wrapper_such_a_name_is_refused(host: object) -> None:
    def act() -> None:
        with socket.socket() as raw:
            sys.audit("socket.connect", raw, (host, 80))  # what the C method reports

    assert _recorded(act) == "sandbox_network_denied"
    assert _recorded(lambda: socket.getaddrinfo(_SHARP.encode(), 80)) == "sandbox_network_denied"


@pytest.mark.parametrize("name", ["connect", "connect_ex", "sendto", "sendmsg"])
@pytest.mark.parametrize("host", ["", b""])
def test_no_host_is_no_target_to_dial(name: str, host: object) -> None:
    def act() -> None:
        with socket.socket(type=socket.SOCK_DGRAM) as one:
            before = {"sendto": (b"x",), "sendmsg": ([b"x"], [], 0)}.get(name, ())
            getattr(one, name)(*before, (host, 9))

    assert _recorded(act) == "network_target_missing"


DIALLED: dict[str, Any] = {
    "create_connection": lambda: socket.create_connection(("", 80)),
    "create_connection to bytes": lambda: socket.create_connection((b"", 80)),  # type: ignore[arg-type]
    "open_connection": lambda: asyncio.run(asyncio.open_connection("", 80)),
    "HTTPConnection": lambda: http.client.HTTPConnection("").request("GET", "/"),
    "HTTPConnection.connect": lambda: http.client.HTTPConnection("").connect(),
    "urlopen": lambda: urllib.request.urlopen("http://"),
    "urlopen of a path": lambda: urllib.request.urlopen("http:///path"),
    "httpx": lambda: httpx.get(""),
    "httpx of a scheme": lambda: httpx.get("http://"),
    "aiohttp's loop": lambda: asyncio.run(_of_a_loop("")),
}


async def _of_a_loop(host: str) -> object:
    return await asyncio.get_running_loop().create_connection(asyncio.Protocol, host, 80)


@pytest.mark.parametrize("way", DIALLED)
def test_no_host_is_no_target_by_whatever_call(way: str) -> None:
    assert _recorded(DIALLED[way]) == "network_target_missing"


def test_without_a_guard_no_host_is_what_it_always_was() -> None:
    def check() -> object:
        with process_guard_context("m", "module"):
            pass
        found = []
        for act in (DIALLED["create_connection"], DIALLED["open_connection"]):
            try:
                act()
            except OSError as error:
                found.append(type(error).__name__)
        return found

    assert confined(check) == ["gaierror", "gaierror"]


async def _served() -> None:
    server = await asyncio.start_server(lambda *_: None, "", 0)
    server.close()
    await server.wait_closed()


LISTENING: dict[str, Any] = {
    "bind": lambda: _listening(socket.socket()),
    "create_server": lambda: socket.create_server(("", 0)).close(),
    "gethostbyname": lambda: socket.gethostbyname(""),
    "http.server": lambda: http.server.HTTPServer(("", 0), None).server_close(),  # type: ignore[arg-type]
    "start_server": lambda: asyncio.run(_served()),
}


def _listening(one: socket.socket) -> None:
    with one:
        one.bind(("", 0))
        one.listen()


@pytest.mark.parametrize("way", LISTENING)
def test_listening_names_no_target(way: str) -> None:
    def check() -> object:
        with process_guard_context("m", "module"):
            LISTENING[way]()
        return "listening"

    assert confined(check) == "listening"


def test_an_own_address_is_bound_and_the_other_end_dialled() -> None:
    """What follows the address in a call reaches the original as it was given."""

    def check() -> object:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            with process_guard_context("m", "module", allowed_targets=[f"localhost:{port}"]):
                source = ("127.0.0.1", 0)
                with socket.create_connection(("127.0.0.1", port), 5, source_address=source) as one:
                    return [one.gettimeout(), one.getpeername()[1] == port]

    assert confined(check) == [5.0, True]
