"""HTTP libraries under the guard: the method decides, redirects are judged hop by hop."""

from __future__ import annotations

import asyncio
import http.client
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest
from guard.confined import confined
from guard.laboratory import resolvable
from guard.servers import http_server, websocket_server

from democrai_osguard.access import Rule
from democrai_osguard.guard import process_guard_context

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytest.importorskip("requests")
pytest.importorskip("httpx")
pytest.importorskip("aiohttp")
pytest.importorskip("websockets")


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with http_server() as found:
        yield found


def _urllib(method: str, url: str) -> str:
    body = b"x" if method == "POST" else None
    with urllib.request.urlopen(urllib.request.Request(url, body)) as response:  # noqa: S310 - http
        return str(response.read().decode())


def _client(method: str, url: str) -> str:
    host, _, path = url.removeprefix("http://").partition("/")
    connection = http.client.HTTPConnection(host)
    connection.request(method, f"/{path}")
    return connection.getresponse().read().decode()


def _requests(method: str, url: str) -> str:
    import requests  # noqa: PLC0415 - imported where it is guarded

    return str(requests.request(method, url, timeout=5).text)


def _urllib3(method: str, url: str) -> str:
    import urllib3  # noqa: PLC0415 - as above

    return urllib3.PoolManager().request(method, url).data.decode()


def _httpx(method: str, url: str) -> str:
    import httpx  # noqa: PLC0415 - as above

    with httpx.Client(follow_redirects=True) as client:
        return str(client.request(method, url).text)


def _httpx_async(method: str, url: str) -> str:
    import httpx  # noqa: PLC0415 - as above

    async def fetch() -> str:
        async with httpx.AsyncClient(follow_redirects=True) as client:
            return str((await client.request(method, url)).text)

    return asyncio.run(fetch())


def _aiohttp(method: str, url: str) -> str:
    import aiohttp  # noqa: PLC0415 - as above

    async def fetch() -> str:
        async with aiohttp.ClientSession() as session, session.request(method, url) as response:
            return await response.text()

    return asyncio.run(fetch())


LIBRARIES: dict[str, Callable[[str, str], str]] = {
    "urllib": _urllib,
    "http.client": _client,
    "requests": _requests,
    "urllib3": _urllib3,
    "httpx": _httpx,
    "httpx-async": _httpx_async,
    "aiohttp": _aiohttp,
}


def _attempt(fetch: Callable[[str, str], str], method: str, url: str) -> str:
    try:
        return fetch(method, url)
    except PermissionError as error:
        return str(error)


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_receive_rule_reads_its_path_and_nothing_else(library: str, port: int) -> None:
    base = f"http://127.0.0.1:{port}"
    fetch = LIBRARIES[library]

    def check() -> object:
        with process_guard_context("m", "module", [Rule("network", "receive", f"{base}/v1")]):  # type: ignore[arg-type]
            return [
                _attempt(fetch, "GET", f"{base}/v1/x"),
                _attempt(fetch, "POST", f"{base}/v1/x"),
                _attempt(fetch, "GET", f"{base}/v10"),
            ]

    where = f"http://localhost:{port}"
    assert confined(check) == [
        "GET /v1/x",
        f"sandbox_network_denied:m:send:{where}/v1/x",
        f"sandbox_network_denied:m:receive:{where}/v10",
    ]


def _under(operation: str, port: int, fetch: Callable[[str], str]) -> Any:  # noqa: ANN401 - what came back, or the refusal
    base = f"http://127.0.0.1:{port}"

    def check() -> object:
        with process_guard_context("m", "module", [Rule("network", operation, f"{base}/v1")]):  # type: ignore[arg-type]
            return _attempt(lambda _, url: fetch(url), "", f"{base}/v1/x")

    return confined(check)


@pytest.mark.parametrize("library", sorted(LIBRARIES.keys() - {"urllib", "http.client"}))
def test_a_method_in_lower_case_reads_where_the_library_sends_it_in_upper_case(
    library: str, port: int
) -> None:
    found = _under("receive", port, lambda url: LIBRARIES[library]("get", url))
    assert found == "GET /v1/x"


def _urllib_in_lower_case(url: str) -> str:
    request = urllib.request.Request(url, method="get")  # noqa: S310 - http
    try:
        with urllib.request.urlopen(request) as response:  # noqa: S310 - http
            return str(response.read().decode())
    except urllib.error.HTTPError as error:  # the server knows no such method
        with error:
            return str(error.code)


def _client_in_lower_case(url: str) -> str:
    host, _, path = url.removeprefix("http://").partition("/")
    connection = http.client.HTTPConnection(host)
    connection.request("get", f"/{path}")
    return str(connection.getresponse().status)


@pytest.mark.parametrize("fetch", [_urllib_in_lower_case, _client_in_lower_case])
def test_a_method_that_is_sent_in_lower_case_is_an_unknown_one(
    fetch: Callable[[str], str], port: int
) -> None:
    refused = f"sandbox_network_denied:m:send:http://localhost:{port}/v1/x"
    assert _under("receive", port, fetch) == refused
    assert _under("send", port, fetch) == "501"


def _with_body(url: str, body: bytes | None = b"body") -> str:
    request = urllib.request.Request(url, body, method="GET")  # noqa: S310 - http
    with urllib.request.urlopen(request) as response:  # noqa: S310 - http
        return str(response.read().decode())


def _with_late_body(url: str) -> str:
    request = urllib.request.Request(url, method="GET")  # noqa: S310 - http
    with urllib.request.urlopen(request, b"") as response:  # noqa: S310 - http
        return str(response.read().decode())


@pytest.mark.parametrize("fetch", [_with_body, _with_late_body])
def test_urlopen_with_a_body_sends_whatever_the_method_says(
    fetch: Callable[[str], str], port: int
) -> None:
    refused = f"sandbox_network_denied:m:send:http://localhost:{port}/v1/x"
    assert _under("receive", port, fetch) == refused
    assert _under("send", port, fetch) == "GET /v1/x"


def test_a_redirect_of_a_request_with_a_body_is_followed_without_it(port: int) -> None:
    def fetch(url: str) -> str:
        return _with_body(url.replace("/v1/x", "/v1/away"))

    refused = f"sandbox_network_denied:m:receive:http://localhost:{port}/secret"
    assert _under("send", port, fetch) == refused


@pytest.mark.parametrize("library", [name for name in LIBRARIES if name != "http.client"])
def test_a_redirect_is_judged_where_it_leads(library: str, port: int) -> None:
    base = f"http://127.0.0.1:{port}"

    def check() -> object:
        with process_guard_context("m", "module", [Rule("network", "receive", f"{base}/v1")]):  # type: ignore[arg-type]
            return _attempt(LIBRARIES[library], "GET", f"{base}/v1/away")

    assert confined(check) == f"sandbox_network_denied:m:receive:http://localhost:{port}/secret"


def test_a_file_that_may_not_be_read_is_refused_as_itself(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("text")

    def check() -> object:
        with process_guard_context("m", "module"):
            outside = _attempt(_urllib, "GET", file.as_uri())
        with process_guard_context("m", "module", allowed_paths=[tmp_path]):
            return [outside, _attempt(_urllib, "GET", file.as_uri())]

    who = "subject=module:m; operation=read; chain=module:m"
    assert confined(check) == [f"sandbox_filesystem_denied:m:{file} ({who})", "text"]


@pytest.mark.parametrize("url", ["", " ", "http://"])
def test_urlopen_needs_a_target(url: str) -> None:
    def check() -> object:
        with process_guard_context("m", "module"):
            try:
                urllib.request.urlopen(url)  # noqa: S310 - no URL at all
            except ValueError as error:
                return str(error)
        return "opened"

    assert confined(check) == "network_target_missing"


def test_a_raw_socket_needs_a_rule_of_its_own(port: int) -> None:
    def check() -> object:
        import socket  # noqa: PLC0415 - in the child only

        rule = Rule("network", "receive", f"http://127.0.0.1:{port}")  # type: ignore[arg-type]
        with process_guard_context("m", "module", [rule]):
            first = _attempt(_urllib, "GET", f"http://127.0.0.1:{port}/")
            try:
                socket.create_connection(("127.0.0.1", port), 1)
            except PermissionError as error:
                return [first, str(error)]
        return None

    assert confined(check) == ["GET /", f"sandbox_network_denied:m:connect:localhost:{port}"]


def test_a_rule_for_a_name_covers_what_the_name_resolved_to_here(port: int) -> None:
    name = resolvable()

    def check() -> object:
        import socket  # noqa: PLC0415 - in the child only

        rule = Rule("network", "connect", f"{name}:{port}")  # type: ignore[arg-type]
        with process_guard_context("m", "module", [rule]):
            try:
                socket.create_connection(("127.0.0.1", port), 1)
            except PermissionError as error:
                before = str(getattr(error, "code", error))
            socket.create_connection((name, port), 1).close()
            socket.create_connection(("127.0.0.1", port), 1).close()
            try:
                socket.getaddrinfo("elsewhere.invalid", port)
            except PermissionError as error:
                return [before, str(error)]
        return None

    elsewhere = "sandbox_network_denied:m:connect:elsewhere.invalid"
    assert confined(check) == ["sandbox_network_denied", elsewhere]


def _talk(uri: str) -> str:
    from websockets.sync.client import connect  # noqa: PLC0415 - imported where it is guarded

    with connect(uri) as socket:
        socket.send("hello")
        return str(socket.recv())


def _talk_async(uri: str) -> str:
    from websockets.asyncio.client import connect  # noqa: PLC0415 - as above

    async def talk() -> str:
        async with connect(uri) as socket:
            await socket.send("hello")
            return str(await socket.recv())

    return asyncio.run(talk())


def _talk_aiohttp(uri: str) -> str:
    import aiohttp  # noqa: PLC0415 - as above

    async def talk() -> str:
        async with aiohttp.ClientSession() as session, session.ws_connect(uri) as socket:
            await socket.send_str("hello")
            return str(await socket.receive_str())

    return asyncio.run(talk())


@pytest.mark.parametrize("talk", [_talk, _talk_async, _talk_aiohttp])
def test_a_websocket_reads_and_writes_under_two_rules(talk: Callable[[str], str]) -> None:
    with websocket_server() as port:
        uri = f"ws://127.0.0.1:{port}"

        def under(*operations: str) -> Any:  # noqa: ANN401 - what was said, or the refusal
            rules = [Rule("network", operation, uri) for operation in operations]  # type: ignore[arg-type]

            def check() -> object:
                with process_guard_context("m", "module", rules):
                    return _attempt(lambda _, url: talk(url), "", uri)

            return confined(check)

        where = f"ws://localhost:{port}"
        assert under("receive", "send") == "hello"
        assert under("receive") == f"sandbox_network_denied:m:send:{where}"
        assert under("send") == f"sandbox_network_denied:m:receive:{where}"
        assert under() == f"sandbox_network_denied:m:receive:{where}"
