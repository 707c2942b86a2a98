"""Websockets: opened to read or to write, and each message judged as what it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from democrai_osguard.guard.outcome import as_error
from democrai_osguard.guard.patches.http import exchange
from democrai_osguard.guard.patches.rows import Replacement

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Doors = Mapping[str, Any]
    Make = Callable[[Any], Any]

_EITHER = ("receive", "send")


def _async_create(doors: Doors) -> Make:
    def make(original: Any) -> Any:
        async def create_connection(self: Any, *args: Any, **kwargs: Any) -> Any:
            with exchange(doors, _EITHER, str(self.uri)):
                connection = await original(self, *args, **kwargs)
            connection.democrai_url = str(self.uri)
            return connection

        return create_connection

    return make


def _sync_connect(doors: Doors) -> Make:
    def make(original: Any) -> Any:
        def connect(uri: str, *args: Any, **kwargs: Any) -> Any:
            with exchange(doors, _EITHER, uri):
                connection = original(uri, *args, **kwargs)
            connection.democrai_url = uri
            return connection

        return connect

    return make


def _message(doors: Doors, operation: str, find: Callable[[Any], str | None]) -> Make:
    """Return a maker of methods that judge one message of an open websocket."""

    def make(original: Any) -> Any:
        def method(self: Any, *args: Any, **kwargs: Any) -> Any:
            url = find(self)
            if url is not None:
                answer = doors["message"](operation, url)
                if answer is not None:
                    raise as_error(answer) from None
            return original(self, *args, **kwargs)

        return method

    return make


def _own_url(connection: Any) -> str | None:
    return getattr(connection, "democrai_url", None)


def _aiohttp_url(socket: Any) -> str | None:
    url = getattr(getattr(socket, "_response", None), "url", None)
    return None if url is None else str(url)


def websocket_patches(doors: Doors) -> tuple[Replacement, ...]:
    """Return the rows of this area."""
    asynchronous = "websockets.asyncio.connection:Connection"
    synchronous = "websockets.sync.connection:Connection"
    aiohttp = "aiohttp.client_ws:ClientWebSocketResponse"
    messages = [
        Replacement(owner, name, _message(doors, operation, _own_url))
        for owner in (asynchronous, synchronous)
        for name, operation in (("send", "send"), ("recv", "receive"))
    ]
    frames = [
        Replacement(aiohttp, name, _message(doors, operation, _aiohttp_url))
        for name, operation in (
            ("send_str", "send"),
            ("send_bytes", "send"),
            ("send_json", "send"),
            ("receive", "receive"),
        )
    ]
    return (
        # The method's name changed between releases; each has one of the two.
        Replacement("websockets.asyncio.client:connect", "create_connection", _async_create(doors)),
        Replacement(
            "websockets.asyncio.client:connect", "open_tcp_connection", _async_create(doors)
        ),
        Replacement("websockets.sync.client", "connect", _sync_connect(doors), everywhere=True),
        *messages,
        *frames,
    )
