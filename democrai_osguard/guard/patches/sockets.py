"""Sockets and name look-ups: judged before the C code resolves a name or sends a byte."""

from __future__ import annotations

import _socket
import os
from operator import index
from typing import TYPE_CHECKING, Any

from democrai_osguard.guard.outcome import as_error
from democrai_osguard.guard.patches.rows import Replacement
from democrai_osguard.targets.host import parse_host

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


_EXACT = frozenset({str, int, bytes})
_LOOP = "asyncio.base_events:BaseEventLoop"
# The C attribute: Python's property makes an enum of it, and a subclass may lie.
_family = _socket.socket.family.__get__


def plain_address(address: Any) -> Any:
    """Return an address as exact values, so that what is judged is what is used."""
    if address.__class__ is tuple:
        for item in address:
            if item.__class__ not in _EXACT:
                break
        else:
            return address
    if isinstance(address, (list, tuple)):
        return tuple(plain_address(item) for item in address)
    if isinstance(address, str):
        return "".join((address,))  # noqa: FLY002 - joining calls no method of a subclass
    if isinstance(address, (bytes, bytearray)):
        return b"".join((address,))
    if isinstance(address, int):
        return index(address) + 0
    return os.fspath(address) if hasattr(address, "__fspath__") else address


def _dialled(address: Any) -> Any:
    """Return an address whose host is written as it is judged: C code would encode it otherwise."""
    if address.__class__ is tuple and address and address[0].__class__ is str:
        return address if address[0].isascii() else (_ascii(address[0]), *address[1:])
    return address


def _ascii(host: str) -> str:
    return str(parse_host(host, host))


def _address(doors: Mapping[str, Any], judge: Any) -> Callable[[Any], Any]:
    token, watching = doors["token"], doors["watching"]

    def make(original: Any) -> Any:
        def act(self: Any, address: Any) -> Any:
            if token(None) is None and not watching():
                return original(self, address)
            address = _dialled(plain_address(address))
            answer = judge(_family(self), address)
            if answer is not None:
                raise as_error(answer) from None
            return original(self, address)

        return act

    return make


def _sendto(doors: Mapping[str, Any]) -> Callable[[Any], Any]:
    def make(original: Any) -> Any:
        def sendto(self: Any, data: Any, *args: Any) -> Any:
            *flags, address = args
            address = _dialled(plain_address(address))
            answer = doors["connect"](_family(self), address)
            if answer is not None:
                raise as_error(answer) from None
            return original(self, data, *flags, address)

        return sendto

    return make


def _sendmsg(doors: Mapping[str, Any]) -> Callable[[Any], Any]:
    def make(original: Any) -> Any:
        def sendmsg(
            self: Any,
            buffers: Any,
            ancdata: Any = (),
            flags: Any = 0,
            address: Any = None,
        ) -> Any:
            if address is None:
                return original(self, buffers, ancdata, flags)
            address = _dialled(plain_address(address))
            answer = doors["connect"](_family(self), address)
            if answer is not None:
                raise as_error(answer) from None
            return original(self, buffers, ancdata, flags, address)

        return sendmsg

    return make


def _create_connection(doors: Mapping[str, Any]) -> Callable[[Any], Any]:
    """`socket.create_connection`, which would look an empty host up before it dials it."""

    def make(original: Any) -> Any:
        def create_connection(address: Any, *args: Any, **kwargs: Any) -> Any:
            check_named(doors, address[0])
            return original(address, *args, **kwargs)

        return create_connection

    return make


def _loop_connection(doors: Mapping[str, Any]) -> Callable[[Any], Any]:
    """Guard the event loop's `create_connection`, likewise."""

    def make(original: Any) -> Any:
        async def create_connection(
            self: Any, protocol_factory: Any, host: Any = None, *args: Any, **kwargs: Any
        ) -> Any:
            check_named(doors, host)
            return await original(self, protocol_factory, host, *args, **kwargs)

        return create_connection

    return make


def check_named(doors: Mapping[str, Any], host: Any) -> None:
    """Raise NetworkTargetMissing under a guard where the host to dial is empty; None is not."""
    if isinstance(host, (str, bytes)) and not host:
        answer = doors["connect"](_socket.AF_INET, ("", 0))
        if answer is not None:
            raise as_error(answer) from None


LOOK_UPS = ("getaddrinfo", "gethostbyname", "gethostbyname_ex")


def _is_number(host: Any) -> bool:
    """Tell whether a host is an address, which needs no look-up."""
    return host.__class__ is str and (":" in host or host.replace(".", "").isdigit())


def _look_up(doors: Mapping[str, Any], name: str) -> Callable[[Any], Any]:
    """Return a maker of functions that look names up where what they lead to is remembered."""
    token, watching, door = doors["token"], doors["watching"], doors["look_up"]

    def make(original: Any) -> Any:
        def look_up(host: Any, *args: Any, **kwargs: Any) -> Any:
            if (token(None) is None and not watching()) or host is None or _is_number(host):
                return original(host, *args, **kwargs)
            host = plain_address(host)
            if host.__class__ is str and not host.isascii():
                host = _ascii(host)
            values = [plain_address(value) for value in (host, *args)]
            named = {key: plain_address(value) for key, value in kwargs.items()}
            found = door(name, values, named)
            if isinstance(found, BaseException):
                raise as_error(found) from None
            return found

        return look_up

    return make


def socket_patches(doors: Mapping[str, Any]) -> tuple[Replacement, ...]:
    """Return the rows of this area."""
    connect = _address(doors, doors["connect"])
    return (
        Replacement("socket:socket", "connect", connect),
        Replacement("socket:socket", "connect_ex", connect),
        Replacement("socket:socket", "bind", _address(doors, doors["binding"])),
        Replacement("socket", "create_connection", _create_connection(doors), everywhere=True),
        Replacement(_LOOP, "create_connection", _loop_connection(doors)),
        Replacement("socket:socket", "sendto", _sendto(doors)),
        Replacement("socket:socket", "sendmsg", _sendmsg(doors)),
        *(
            Replacement("_socket", name, _look_up(doors, name), everywhere=True)
            for name in LOOK_UPS
        ),
    )
