"""TLS and proxies: the URL is judged as it is asked for, and a proxy as the connection it is."""

from __future__ import annotations

import asyncio
import http.client
import os
import ssl
import urllib.request
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from guard.confined import confined
from guard.secure_servers import https_server, make_certificates, proxy_server, server_context
from guard.servers import http_server, websocket_server

from democrai_osguard.access import Rule
from democrai_osguard.guard import process_guard_context

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

for _library in ("requests", "httpx", "aiohttp", "websockets"):
    pytest.importorskip(_library)

_PATIENCE = 30


@dataclass(frozen=True)
class Place:
    """What runs on this machine for these tests."""

    ca: str
    http: int
    https: int
    websocket: int
    proxy: int
    asked: list[str]  # of the proxy


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """Run every server."""
    ca, own = make_certificates(tmp_path_factory.mktemp("certificates"))
    with (
        http_server() as plain,
        https_server(own) as secure,
        websocket_server(server_context(own)) as websocket,
        proxy_server() as (proxy, asked),
    ):
        yield Place(str(ca), plain, secure, websocket, proxy, asked)


def _context(place: Place) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=place.ca)


def _urllib(place: Place, method: str, url: str) -> str:
    request = urllib.request.Request(url, b"x" if method == "POST" else None)  # noqa: S310 - our own
    with urllib.request.urlopen(request, context=_context(place)) as response:  # noqa: S310 - our own
        return str(response.read().decode())


def _client(place: Place, method: str, url: str) -> str:
    """Ask as the standard library does; a proxy has to be named by hand."""
    scheme, _, rest = url.partition("://")
    host, _, path = rest.partition("/")
    proxy = os.environ.get(f"{scheme}_proxy", "").removeprefix("http://")
    if scheme == "https":
        connection: http.client.HTTPConnection = http.client.HTTPSConnection(
            proxy or host, context=_context(place)
        )
        if proxy:
            connection.set_tunnel(host)
    else:
        connection = http.client.HTTPConnection(proxy or host)
    connection.request(method, url if proxy and scheme == "http" else f"/{path}")
    return connection.getresponse().read().decode()


def _requests(place: Place, method: str, url: str) -> str:
    import requests  # noqa: PLC0415 - imported where it is guarded

    return str(requests.request(method, url, timeout=_PATIENCE, verify=place.ca).text)


def _urllib3(place: Place, method: str, url: str) -> str:
    import urllib3  # noqa: PLC0415 - as above

    proxy = os.environ.get("https_proxy")
    known = {"ca_certs": place.ca}
    pool = urllib3.ProxyManager(proxy, **known) if proxy else urllib3.PoolManager(**known)  # type: ignore[arg-type] # its stubs
    return pool.request(method, url, retries=False).data.decode()


def _httpx(place: Place, method: str, url: str) -> str:
    import httpx  # noqa: PLC0415 - as above

    with httpx.Client(verify=_context(place)) as client:
        return str(client.request(method, url).text)


def _httpx_async(place: Place, method: str, url: str) -> str:
    import httpx  # noqa: PLC0415 - as above

    async def fetch() -> str:
        async with httpx.AsyncClient(verify=_context(place)) as client:
            return str((await client.request(method, url)).text)

    return asyncio.run(fetch())


def _aiohttp(place: Place, method: str, url: str) -> str:
    import aiohttp  # noqa: PLC0415 - as above

    async def fetch() -> str:
        async with (
            aiohttp.ClientSession(trust_env=True) as session,
            session.request(method, url, ssl=_context(place)) as response,
        ):
            return await response.text()

    return asyncio.run(fetch())


LIBRARIES: dict[str, Callable[[Place, str, str], str]] = {
    "urllib": _urllib,
    "http.client": _client,
    "requests": _requests,
    "urllib3": _urllib3,
    "httpx": _httpx,
    "httpx-async": _httpx_async,
    "aiohttp": _aiohttp,
}


def _under(place: Place, rules: list[tuple[str, str]] | None, act: Callable[[], str]) -> str:
    """Return what the act says, or its refusal; None runs it without a guard."""

    def attempt() -> object:
        if rules is None:
            return act()
        network = [Rule("network", operation, target) for operation, target in rules]  # type: ignore[arg-type]
        certificate = Rule("filesystem", "read", place.ca)  # type: ignore[arg-type]
        with process_guard_context("m", "module", [certificate, *network]):
            try:
                return act()
            except PermissionError as error:
                return str(error)

    return str(confined(attempt))


@pytest.mark.parametrize("library", LIBRARIES)
def test_an_encrypted_request_is_judged_by_its_url(library: str, place: Place) -> None:
    base = f"https://localhost:{place.https}"
    rules = [("receive", f"{base}/v1")]

    def ask(method: str, path: str) -> Callable[[], str]:
        return lambda: LIBRARIES[library](place, method, f"{base}{path}")

    assert _under(place, None, ask("POST", "/v10")) == "POST /v10"
    assert _under(place, rules, ask("GET", "/v1/x")) == "GET /v1/x"
    refused = f"sandbox_network_denied:m:send:{base}/v1/x"
    assert _under(place, rules, ask("POST", "/v1/x")) == refused
    refused = f"sandbox_network_denied:m:receive:{base}/v10"
    assert _under(place, rules, ask("GET", "/v10")) == refused


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_rule_for_plain_http_opens_no_tls(library: str, place: Place) -> None:
    base = f"localhost:{place.https}/v1"
    ask = LIBRARIES[library]
    found = _under(
        place, [("receive", f"http://{base}")], lambda: ask(place, "GET", f"https://{base}")
    )
    assert found == f"sandbox_network_denied:m:receive:https://{base}"


@pytest.fixture
def through_proxy(place: Place, monkeypatch: pytest.MonkeyPatch) -> Place:
    """Name the proxy in the environment, as an operator would."""
    for name in ("http_proxy", "https_proxy", "HTTPS_PROXY", "wss_proxy"):
        monkeypatch.setenv(name, f"http://localhost:{place.proxy}")
    for name in ("no_proxy", "NO_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    return place


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("library", LIBRARIES)
def test_a_proxy_needs_a_rule_and_so_does_what_is_asked_of_it(
    library: str, scheme: str, through_proxy: Place
) -> None:
    place = through_proxy
    port = place.https if scheme == "https" else place.http
    base = f"{scheme}://localhost:{port}"
    proxy = ("connect", f"localhost:{place.proxy}")
    target = ("receive", f"{base}/v1")

    def ask(path: str = "/v1/x") -> Callable[[], str]:
        return lambda: LIBRARIES[library](place, "GET", f"{base}{path}")

    place.asked.clear()
    assert _under(place, None, ask("/other")) == "GET /other"
    assert len(place.asked) == 1, "the control went past the proxy"
    assert _under(place, [proxy, target], ask()) == "GET /v1/x"
    assert len(place.asked) == 2, "the guarded request went past the proxy"
    expected = f"sandbox_network_denied:m:receive:{base}/other"
    assert _under(place, [proxy, target], ask("/other")) == expected
    expected = f"sandbox_network_denied:m:receive:{base}/v1/x"
    assert _under(place, [proxy], ask()) == expected
    expected = f"sandbox_network_denied:m:connect:localhost:{place.proxy}"
    assert _under(place, [target], ask()) == expected
    assert len(place.asked) == 2, "a refused request reached the proxy"


def _by_hand(place: Place, method: str, url: str) -> str:
    connection = http.client.HTTPConnection("localhost", place.proxy, timeout=_PATIENCE)
    connection.putrequest(method, url, skip_host=True)
    connection.putheader("Host", f"localhost:{place.http}")
    connection.endheaders()
    return str(connection.getresponse().status)


@pytest.mark.parametrize(
    ("method", "url", "refusal"),
    [
        ("CONNECT", "localhost:{}", "connect:localhost:{}"),
        ("connect", "localhost:{}", "connect:localhost:{}"),
        ("GET", "http://localhost:{}/x", "receive:http://localhost:{}/x"),
        ("GET", "HTTP://localhost:{}/x", "receive:http://localhost:{}/x"),
    ],
)
def test_an_allowed_server_is_not_asked_for_another_place(
    method: str, url: str, refusal: str, place: Place
) -> None:
    """The server is a proxy as well, and everything on itself is allowed."""
    rules = [(verb, f"localhost:{place.proxy}") for verb in ("connect", "receive", "send")]
    url = url.format(place.http)
    assert _under(place, None, lambda: _by_hand(place, method.upper(), url)) == "200"
    found = _under(place, rules, lambda: _by_hand(place, method, url))
    assert found == f"sandbox_network_denied:m:{refusal.format(place.http)}"


@pytest.mark.parametrize("library", ["requests", "urllib3", "httpx", "aiohttp", "urllib"])
def test_a_proxy_of_the_caller_s_own_choice_is_judged(library: str, through_proxy: Place) -> None:
    """A rule for a URL is no rule for whoever is named as its proxy."""
    place = through_proxy
    base = f"http://localhost:{place.http}"
    rules = [("receive", base), ("send", base)]
    found = _under(place, rules, lambda: LIBRARIES[library](place, "GET", f"{base}/x"))
    assert found == f"sandbox_network_denied:m:connect:localhost:{place.proxy}"


def _talk(place: Place, uri: str) -> str:
    from websockets.sync.client import connect  # noqa: PLC0415 - imported where it is guarded

    with connect(uri, ssl=_context(place)) as socket:
        socket.send("hello")
        return str(socket.recv())


def _talk_async(place: Place, uri: str) -> str:
    from websockets.asyncio.client import connect  # noqa: PLC0415 - as above

    async def talk() -> str:
        async with connect(uri, ssl=_context(place)) as socket:
            await socket.send("hello")
            return str(await socket.recv())

    return asyncio.run(talk())


def _talk_aiohttp(place: Place, uri: str) -> str:
    import aiohttp  # noqa: PLC0415 - as above

    async def talk() -> str:
        async with (
            aiohttp.ClientSession(trust_env=True) as session,
            session.ws_connect(uri, ssl=_context(place)) as socket,
        ):
            await socket.send_str("hello")
            return str(await socket.receive_str())

    return asyncio.run(talk())


TALKS = (_talk, _talk_async, _talk_aiohttp)


@pytest.mark.parametrize("talk", TALKS)
def test_an_encrypted_websocket_is_judged_message_by_message(
    talk: Callable[[Place, str], str], place: Place
) -> None:
    uri = f"wss://localhost:{place.websocket}"

    def under(*operations: str) -> str:
        rules = [(operation, uri) for operation in operations]
        return _under(place, rules, lambda: talk(place, uri))

    assert _under(place, None, lambda: talk(place, uri)) == "hello"
    assert under("receive", "send") == "hello"
    assert under("receive") == f"sandbox_network_denied:m:send:{uri}"
    assert under() == f"sandbox_network_denied:m:receive:{uri}"


@pytest.mark.parametrize("talk", TALKS)
def test_a_websocket_through_a_proxy(
    talk: Callable[[Place, str], str], through_proxy: Place
) -> None:
    place = through_proxy
    uri = f"wss://localhost:{place.websocket}"
    both = [("receive", uri), ("send", uri)]
    proxy = ("connect", f"localhost:{place.proxy}")
    place.asked.clear()
    assert _under(place, None, lambda: talk(place, uri)) == "hello"
    assert len(place.asked) == 1, "the control went past the proxy"
    assert _under(place, [*both, proxy], lambda: talk(place, uri)) == "hello"
    expected = f"sandbox_network_denied:m:connect:localhost:{place.proxy}"
    assert _under(place, both, lambda: talk(place, uri)) == expected
    expected = f"sandbox_network_denied:m:receive:{uri}"
    assert _under(place, [proxy], lambda: talk(place, uri)) == expected


def _raw_tls(place: Place) -> str:
    import socket  # noqa: PLC0415 - in the child only

    address = ("localhost", place.https)
    with (
        socket.create_connection(address, _PATIENCE) as plain,
        _context(place).wrap_socket(plain, server_hostname="localhost") as secure,
    ):
        return str(secure.version())


def _wrapped_first(place: Place) -> str:
    import socket  # noqa: PLC0415 - in the child only

    context = _context(place)
    with context.wrap_socket(socket.socket(), server_hostname="localhost") as secure:
        secure.connect(("localhost", place.https))
        return str(secure.version())


def _streams(place: Place) -> str:
    async def talk() -> str:
        _, writer = await asyncio.open_connection("localhost", place.https, ssl=_context(place))
        version = writer.get_extra_info("ssl_object").version()
        writer.close()
        return str(version)

    return asyncio.run(talk())


def _started_tls(place: Place) -> str:
    async def talk() -> str:
        _, writer = await asyncio.open_connection("localhost", place.https)
        await writer.start_tls(_context(place), server_hostname="localhost")
        version = writer.get_extra_info("ssl_object").version()
        writer.close()
        return str(version)

    return asyncio.run(talk())


@pytest.mark.parametrize("way", [_raw_tls, _wrapped_first, _streams, _started_tls])
def test_tls_on_a_socket_of_one_s_own_needs_connect(
    way: Callable[[Place], str], place: Place
) -> None:
    where = f"localhost:{place.https}"
    assert _under(place, None, lambda: way(place)) == "TLSv1.3"
    assert _under(place, [("connect", where)], lambda: way(place)) == "TLSv1.3"
    expected = f"sandbox_network_denied:m:connect:{where}"
    found = _under(place, [("receive", f"https://{where}")], lambda: way(place))
    assert found == expected
