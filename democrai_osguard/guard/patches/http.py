"""HTTP libraries: each exchange is judged by method and URL, and each redirect anew.

The connection that an exchange needs is opened under its own rule; see `sealed.network`. Rows of
libraries that are not loaded wait until they are.
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from democrai_osguard.guard.outcome import as_error
from democrai_osguard.guard.patches.rows import Replacement
from democrai_osguard.refusals import Refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    Doors = Mapping[str, Any]
    Make = Callable[[Any], Any]

_WRAPPINGS = 8  # errors around errors that are looked into
_READING = frozenset({"GET", "HEAD", "OPTIONS"})
# Set while `urlopen` sends a body. No secret: it only makes a `send` of what would be a `receive`.
_BODY: ContextVar[bool] = ContextVar("democrai_osguard_body", default=False)


def operation_of_method(method: Any) -> str:
    """Return `receive` for methods that only read, as they are sent, `send` for every other one."""
    text = method.decode("ascii", "replace") if isinstance(method, bytes) else str(method)
    return "receive" if text in _READING else "send"


@contextmanager
def exchange(
    doors: Doors, operations: tuple[str, ...], url: str, through: str | None = None
) -> Iterator[None]:
    """Judge an exchange and hold its pass; raise the refusal."""
    handle = doors["http_begin"](operations, url, through)
    if isinstance(handle, BaseException):
        raise as_error(handle) from None
    try:
        with plain_refusals():
            yield
    finally:
        if handle is not None:
            doors["http_end"](handle)


@contextmanager
def plain_refusals() -> Iterator[None]:
    """Raise a refusal as itself where a library has wrapped it in an error of its own."""
    try:
        yield
    except Exception as error:
        found = _refusal_within(error)
        if found is None:
            raise
        raise found from None


def _refusal_within(error: BaseException | None) -> Refusal | None:
    for _ in range(_WRAPPINGS):
        if error is None or isinstance(error, Refusal):
            return error
        reason = getattr(error, "reason", None)
        inner = reason if isinstance(reason, BaseException) else None
        error = inner or error.__cause__ or error.__context__
    return None


def _authority(host: str, port: int | None) -> str:
    bracketed = f"[{host}]" if ":" in host and not host.startswith("[") else host
    return bracketed if port is None else f"{bracketed}:{port}"


def _url(scheme: str, host: str, port: int | None, path: str) -> str:
    if not host:
        return ""  # whatever else is said, no place is named
    rest = path if path.startswith(("/", "?")) else f"/{path}" if path else ""
    return f"{scheme}://{_authority(host, port)}{rest.partition('#')[0]}"


def _is_whole(path: str) -> bool:
    """Tell whether what is asked for is a whole URL, of whatever scheme, and not a path."""
    scheme, separator, _ = path.partition("://")
    return bool(separator) and not {"/", "?", "#"} & set(scheme)


def _plain_text(value: Any) -> str:
    """Return a method or URL as exactly the text that is sent, so that it is what was judged."""
    text = value.decode("latin-1") if isinstance(value, bytes) else value
    return "".join((text,))  # noqa: FLY002 - joining calls no method of a subclass


def _refuse(answer: BaseException | None) -> None:
    if answer is not None:
        raise as_error(answer) from None


def _opener_open(doors: Doors) -> Make:
    """`urllib.request.OpenerDirector.open`, through which each redirect passes too."""

    def make(original: Any) -> Any:
        def open(self: Any, fullurl: Any, data: Any = None, *args: Any, **kwargs: Any) -> Any:  # noqa: A001 - the builtin's own name
            text = fullurl if isinstance(fullurl, str) else fullurl.full_url
            scheme = text.partition(":")[0].lower()
            if text.strip() and scheme not in {"http", "https", "ftp"}:
                with plain_refusals():
                    return original(self, fullurl, data, *args, **kwargs)
            operation, body = _operation_of_request(fullurl, data)
            with exchange(doors, (operation,), text), _uploading(body):
                return original(self, fullurl, data, *args, **kwargs)

        return open

    return make


def _operation_of_request(request: Any, data: Any) -> tuple[str, bool]:
    """Return what a request amounts to, and whether it has a body: such a one sends anyway."""
    plain = isinstance(request, str)
    if data is not None or (not plain and request.data is not None):
        return "send", True
    return operation_of_method("GET" if plain else request.get_method()), False


@contextmanager
def _uploading(body: bool) -> Iterator[None]:  # noqa: FBT001 - what is noted
    """Note whether the exchange inside was judged by its body, until the next hop begins."""
    token = _BODY.set(body)
    try:
        yield
    finally:
        _BODY.reset(token)


def _connection_url(connection: Any, path: str) -> tuple[str, str | None]:
    """Return the URL that a connection will really ask for, and the proxy it goes through."""
    scheme = (
        "https"
        if hasattr(connection, "_context") or "HTTPS" in type(connection).__name__
        else "http"
    )
    own = _authority(connection.host, connection.port)
    tunnel = getattr(connection, "_tunnel_host", None)
    if tunnel:
        port = getattr(connection, "_tunnel_port", None)
        return _url(scheme, tunnel, port, path), own
    if _is_whole(path):
        return path, own  # a proxy is asked for a whole URL
    return _url(scheme, connection.host, connection.port, path if path != "*" else "/"), None


def _client_request(doors: Doors) -> Make:
    """`http.client.HTTPConnection.putrequest`, which every request passes."""

    def make(original: Any) -> Any:
        def putrequest(self: Any, method: Any, url: Any, *args: Any, **kwargs: Any) -> Any:
            method, url = _plain_text(method), _plain_text(url)
            if method.upper() == "CONNECT":  # the server is asked to connect to what it names
                _refuse(doors["message"]("connect", url))
            target, through = _connection_url(self, url)
            operation = "send" if _BODY.get() else operation_of_method(method)
            with exchange(doors, (operation,), target, through):
                return original(self, method, url, *args, **kwargs)

        return putrequest

    return make


def _client_connect(doors: Doors) -> Make:
    """`http.client.HTTPConnection.connect`: an HTTP rule for the place opens its connection."""

    def make(original: Any) -> Any:
        def connect(self: Any) -> Any:
            target, _ = _connection_url(self, "/")
            scheme = target.partition(":")[0]
            handle = doors["http_endpoint"](scheme, str(self.host), int(self.port))
            if isinstance(handle, BaseException):
                raise as_error(handle) from None
            try:
                return original(self)
            finally:
                if handle is not None:
                    doors["http_end"](handle)

        return connect

    return make


def _pool_urlopen(doors: Doors) -> Make:
    """`urllib3`'s pool: requests and botocore end here, with their redirects followed outside."""

    def make(original: Any) -> Any:
        def urlopen(self: Any, method: Any, url: Any, *args: Any, **kwargs: Any) -> Any:
            proxy = getattr(self, "proxy", None)
            method, url = _plain_text(method), _plain_text(url)
            own = _url(self.scheme, self.host, self.port, url)
            target = url if _is_whole(url) else own
            through = None if proxy is None else _authority(proxy.host, proxy.port)
            with exchange(doors, (operation_of_method(method),), target, through):
                return original(self, method, url, *args, **kwargs)

        return urlopen

    return make


def _adapter_send(doors: Doors) -> Make:
    """Judge in `requests`' adapter, before the library turns a refusal into its own error."""

    def make(original: Any) -> Any:
        def send(self: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
            with exchange(doors, (operation_of_method(request.method),), str(request.url)):
                return original(self, request, *args, **kwargs)

        return send

    return make


def _httpx_sync(doors: Doors) -> Make:
    def make(original: Any) -> Any:
        def handle_request(self: Any, request: Any) -> Any:
            with exchange(doors, (operation_of_method(request.method),), _httpx_url(request)):
                return original(self, request)

        return handle_request

    return make


def _httpx_async(doors: Doors) -> Make:
    def make(original: Any) -> Any:
        async def handle_async_request(self: Any, request: Any) -> Any:
            with exchange(doors, (operation_of_method(request.method),), _httpx_url(request)):
                return await original(self, request)

        return handle_async_request

    return make


def _httpx_url(request: Any) -> str:
    url = request.url
    if isinstance(getattr(url, "target", None), bytes):  # httpcore: the parts as bytes
        return _url(url.scheme.decode(), url.host.decode(), url.port, url.target.decode())
    return _url(url.scheme, url.host, url.port, url.raw_path.decode("ascii"))


def _aiohttp_connect(doors: Doors) -> Make:
    """`aiohttp`'s connector, which is asked anew for each redirect."""

    def make(original: Any) -> Any:
        async def connect(self: Any, req: Any, *args: Any, **kwargs: Any) -> Any:
            url = req.url
            target = _url(url.scheme, url.raw_host, url.port, url.raw_path_qs)
            upgrade = req.headers.get("Upgrade", "").lower() == "websocket"
            operations = ("receive", "send") if upgrade else (operation_of_method(req.method),)
            proxy = getattr(req, "proxy", None)
            through = None if not proxy else _authority(proxy.raw_host, proxy.port)
            with exchange(doors, operations, target, through):
                return await original(self, req, *args, **kwargs)

        return connect

    return make


def _aiohttp_request(_doors: Doors) -> Make:
    def make(original: Any) -> Any:
        async def _request(self: Any, *args: Any, **kwargs: Any) -> Any:
            with plain_refusals():
                return await original(self, *args, **kwargs)

        return _request

    return make


def http_patches(doors: Doors) -> tuple[Replacement, ...]:
    """Return the rows of this area."""
    return (
        Replacement("urllib.request:OpenerDirector", "open", _opener_open(doors)),
        Replacement("http.client:HTTPConnection", "putrequest", _client_request(doors)),
        Replacement("http.client:HTTPConnection", "connect", _client_connect(doors)),
        Replacement("http.client:HTTPSConnection", "connect", _client_connect(doors)),
        Replacement("urllib3.connectionpool:HTTPConnectionPool", "urlopen", _pool_urlopen(doors)),
        Replacement("requests.adapters:HTTPAdapter", "send", _adapter_send(doors)),
        Replacement("httpx:HTTPTransport", "handle_request", _httpx_sync(doors)),
        Replacement("httpx:AsyncHTTPTransport", "handle_async_request", _httpx_async(doors)),
        Replacement("httpcore:ConnectionPool", "handle_request", _httpx_sync(doors)),
        Replacement("httpcore:AsyncConnectionPool", "handle_async_request", _httpx_async(doors)),
        Replacement("httpx2:HTTPTransport", "handle_request", _httpx_sync(doors)),
        Replacement("httpx2:AsyncHTTPTransport", "handle_async_request", _httpx_async(doors)),
        Replacement("httpcore2:ConnectionPool", "handle_request", _httpx_sync(doors)),
        Replacement("httpcore2:AsyncConnectionPool", "handle_async_request", _httpx_async(doors)),
        Replacement("aiohttp.client:ClientSession", "_request", _aiohttp_request(doors)),
        Replacement("aiohttp.connector:BaseConnector", "connect", _aiohttp_connect(doors)),
    )
