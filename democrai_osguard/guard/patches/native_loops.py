"""uvloop, an event loop in C: what it would do unseen.

Inside a guard its callbacks run in Python's own handles, and what it would dial, look up or start
by itself is dialled, looked up and started by Python's sockets and processes, which are judged.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

from democrai_osguard.guard.outcome import as_error
from democrai_osguard.guard.patches.rows import Replacement
from democrai_osguard.guard.patches.sockets import check_named, plain_address
from democrai_osguard.guard.replacing import dress

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Doors = Mapping[str, Any]
    Make = Callable[[Any], Any]

_MODULE = "uvloop.loop"
_SOUGHT = ("family", "proto", "flags")  # what narrows a look-up


def _handles() -> Callable[..., Any]:
    """Return what makes of a callback one that the guard knows by whom it was handed over."""
    kind = sys.modules["asyncio.events"].Handle  # now: guarded code could put another there

    def handle(callback: Any, args: Any, loop: Any, context: Any = None) -> Any:
        return kind(callback, args, loop, context)._run  # noqa: SLF001 - loops call it

    return handle


def _soon(doors: Doors) -> Make:
    handling = doors["handling"]

    def make(original: Any) -> Any:
        handle = _handles()

        def call_soon(self: Any, callback: Any, *args: Any, context: Any = None) -> Any:
            answer = handling(callback, args, context)
            if isinstance(answer, BaseException):
                raise as_error(answer) from None
            context, around = answer
            if around is None:
                return original(self, callback, *args, context=context)
            return original(self, handle(callback, args, self, context), context=around)

        return call_soon

    return make


def _later(doors: Doors) -> Make:
    handling = doors["handling"]

    def make(original: Any) -> Any:
        handle = _handles()

        def call_later(self: Any, when: Any, callback: Any, *args: Any, context: Any = None) -> Any:
            answer = handling(callback, args, context)
            if isinstance(answer, BaseException):
                raise as_error(answer) from None
            context, around = answer
            if around is None:
                return original(self, when, callback, *args, context=context)
            return original(self, when, handle(callback, args, self, context), context=around)

        return call_later

    return make


def _watched(doors: Doors) -> Make:
    """Return a maker of what calls back whenever something happens."""
    guarded = doors["carried"]

    def make(original: Any) -> Any:
        handle = _handles()

        def watch(self: Any, what: Any, callback: Any, *args: Any) -> Any:
            if guarded() is None:
                return original(self, what, callback, *args)
            return original(self, what, handle(callback, args, self))

        return watch

    return make


def _addresses(doors: Doors) -> Make:
    guarded = doors["carried"]

    def make(original: Any) -> Any:
        def getaddrinfo(self: Any, host: Any, port: Any, **options: Any) -> Any:
            if guarded() is None:
                return original(self, host, port, **options)
            return _in_thread(socket.getaddrinfo, host, port, **options)

        return getaddrinfo

    return make


def _names(doors: Doors) -> Make:
    guarded = doors["carried"]

    def make(original: Any) -> Any:
        def getnameinfo(self: Any, sockaddr: Any, flags: Any = 0) -> Any:
            if guarded() is None:
                return original(self, sockaddr, flags)
            return _in_thread(socket.getnameinfo, sockaddr, flags)

        return getnameinfo

    return make


def _in_thread(function: Any, *args: Any, **options: Any) -> Any:
    return sys.modules["asyncio"].to_thread(function, *args, **options)


def _connection(doors: Doors) -> Make:
    guarded = doors["carried"]

    async def connected(original: Any, loop: Any, factory: Any, place: Any, options: Any) -> Any:
        check_named(doors, place[0])
        sought = _taken(options, _SOUGHT)
        sock = await _dialled(loop, place, options.pop("local_addr", None), sought)
        if options.get("ssl") and options.get("server_hostname") is None:
            options["server_hostname"] = place[0]
        return await _handed_over(original, loop, factory, sock, options)

    def make(original: Any) -> Any:
        def create_connection(
            self: Any, protocol_factory: Any, host: Any = None, port: Any = None, **options: Any
        ) -> Any:
            place = host, port
            if guarded() is None or place == (None, None):
                return original(self, protocol_factory, host, port, **options)
            return connected(original, self, protocol_factory, place, options)

        return create_connection

    return make


async def _dialled(loop: Any, place: Any, local: Any, sought: Any) -> socket.socket:
    """Return a connected socket, to the first address of a host that can be reached."""
    errors = []
    kind = socket.SOCK_STREAM
    for family, _, proto, _, address in await loop.getaddrinfo(*place, type=kind, **sought):
        sock = socket.socket(family, kind, proto)
        try:
            sock.settimeout(0)
            if local is not None:
                sock.bind(local)
            await loop.sock_connect(sock, address)
        except OSError as error:
            errors.append(error)
            sock.close()
        except BaseException:
            sock.close()
            raise
        else:
            return sock
    raise errors[0]


async def _handed_over(original: Any, loop: Any, factory: Any, sock: Any, options: Any) -> Any:
    """Let the loop go on with a socket; close it where it does not."""
    try:
        return await original(loop, factory, sock=sock, **options)
    except BaseException:
        sock.close()
        raise


def _taken(options: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: options.pop(name) for name in names if name in options}


def _unix_connection(doors: Doors) -> Make:
    guarded = doors["carried"]

    async def connected(original: Any, loop: Any, factory: Any, path: Any, options: Any) -> Any:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.settimeout(0)
            await loop.sock_connect(sock, os.fspath(path))
        except BaseException:
            sock.close()
            raise
        return await _handed_over(original, loop, factory, sock, options)

    def make(original: Any) -> Any:
        def create_unix_connection(
            self: Any, protocol_factory: Any, path: Any = None, **options: Any
        ) -> Any:
            if guarded() is None or path is None:
                return original(self, protocol_factory, path, **options)
            return connected(original, self, protocol_factory, path, options)

        return create_unix_connection

    return make


def _datagrams(doors: Doors) -> Make:
    guarded = doors["carried"]

    async def opened(original: Any, loop: Any, factory: Any, ends: Any, options: Any) -> Any:
        sock = await _datagram_socket(loop, ends, options)
        return await _handed_over(original, loop, factory, sock, options)

    def make(original: Any) -> Any:
        def create_datagram_endpoint(
            self: Any,
            protocol_factory: Any,
            local_addr: Any = None,
            remote_addr: Any = None,
            **options: Any,
        ) -> Any:
            ends = local_addr, remote_addr
            if guarded() is None or ends == (None, None):
                return original(self, protocol_factory, *ends, **options)
            return opened(original, self, protocol_factory, ends, options)

        return create_datagram_endpoint

    return make


async def _datagram_socket(loop: Any, ends: Any, options: Any) -> socket.socket:
    """Return a socket for datagrams, bound to one end and tied to the other."""
    local, remote = ends
    found = await loop.getaddrinfo(
        *(remote or local), type=socket.SOCK_DGRAM, **_taken(options, _SOUGHT)
    )
    family, kind, proto, _, address = found[0]
    sock = socket.socket(family, kind, proto)
    try:
        sock.settimeout(0)
        if options.pop("reuse_port", None):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if options.pop("allow_broadcast", None):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        if local:
            sock.bind(local if remote else address)
        if remote:
            sock.connect(address)
    except BaseException:
        sock.close()
        raise
    return sock


def _sent(doors: Doors) -> Make:
    guarded = doors["carried"]

    def make(original: Any) -> Any:
        def sendto(self: Any, data: Any, addr: Any = None) -> Any:
            if addr is None or guarded() is None:
                return original(self, data, addr)
            addr = plain_address(addr)
            family = socket.AF_INET6 if ":" in str(addr[0]) else socket.AF_INET
            answer = doors["connect"](int(family), addr)
            if answer is not None:
                raise as_error(answer) from None
            return original(self, data, addr)

        return sendto

    return make


def _server(doors: Doors) -> Make:
    guarded = doors["carried"]

    async def served(original: Any, loop: Any, factory: Any, place: Any, options: Any) -> Any:
        host, port = place
        for each in [host] if isinstance(host, (str, bytes)) else host:
            if each:
                await loop.getaddrinfo(each, port, type=socket.SOCK_STREAM)
        return await original(loop, factory, host, port, **options)

    def make(original: Any) -> Any:
        def create_server(
            self: Any, protocol_factory: Any, host: Any = None, port: Any = None, **options: Any
        ) -> Any:
            if guarded() is None or not host:
                return original(self, protocol_factory, host, port, **options)
            return served(original, self, protocol_factory, (host, port), options)

        return create_server

    return make


def _program(doors: Doors) -> Make:
    guarded = doors["carried"]

    def make(original: Any) -> Any:
        def subprocess_exec(self: Any, protocol_factory: Any, *args: Any, **options: Any) -> Any:
            if guarded() is None:
                return original(self, protocol_factory, *args, **options)
            return _started(self, protocol_factory, args, options)

        return subprocess_exec

    return make


def _line(doors: Doors) -> Make:
    guarded = doors["carried"]

    def make(original: Any) -> Any:
        def subprocess_shell(
            self: Any, protocol_factory: Any, cmd: Any, *, shell: Any = True, **options: Any
        ) -> Any:
            if guarded() is None or not shell:
                return original(self, protocol_factory, cmd, shell=shell, **options)
            return _started(self, protocol_factory, cmd, {**options, "shell": True})

        return subprocess_shell

    return make


def _spawned(doors: Doors) -> Make:
    """Return a maker of what both of them would end in."""
    guarded = doors["carried"]

    def make(original: Any) -> Any:
        def run(self: Any, protocol_factory: Any, args: Any, **options: Any) -> Any:
            if guarded() is None:
                return original(self, protocol_factory, args, **options)
            return _started(self, protocol_factory, args, {**options, "shell": False})

        return run

    return make


async def _started(loop: Any, factory: Any, command: Any, options: dict[str, Any]) -> Any:
    """Start a process as the loops of Python itself do."""
    kind: Any = vars(sys.modules["asyncio.unix_events"])["_UnixSubprocessTransport"]
    pipe = subprocess.PIPE
    ends = [options.pop(name, pipe) for name in ("stdin", "stdout", "stderr")]
    shell, size = options.pop("shell", False), options.pop("bufsize", 0)
    options.pop("universal_newlines", None)
    protocol, waiter = factory(), loop.create_future()
    transport = kind(loop, protocol, command, shell, *ends, size, waiter=waiter, **options)
    process = transport.get_extra_info("subprocess")
    threading.Thread(target=_wait_for, args=(loop, transport, process), daemon=True).start()
    try:
        await waiter
    except BaseException:
        transport.close()
        raise
    return transport, protocol


def _wait_for(loop: Any, transport: Any, process: Any) -> None:
    code = process.wait()
    with contextlib.suppress(RuntimeError):  # the loop is closed
        loop.call_soon_threadsafe(transport._process_exited, code)  # noqa: SLF001 - loops call it


def _monitored(doors: Doors) -> Make:
    guarded = doors["carried"]

    def make(original: Any) -> Any:
        handle = _handles()

        def monitor(self: Any, path: Any, callback: Any) -> Any:
            if guarded() is None:
                return original(self, path, callback)
            path = plain_address(path)
            os.stat(path)  # it is judged here
            return original(self, path, handle(callback, (), self))

        return monitor

    return make


def native_makers(doors: Doors) -> dict[str, dict[str, Make]]:
    """Return what stands for methods of types made in C, by type and name."""
    watched = _watched(doors)
    loop = {
        "call_soon": _soon(doors),
        "call_soon_threadsafe": _soon(doors),
        "call_later": _later(doors),
        "call_at": _later(doors),
        "add_reader": watched,
        "add_writer": watched,
        "add_signal_handler": watched,
        "getaddrinfo": _addresses(doors),
        "getnameinfo": _names(doors),
        "create_connection": _connection(doors),
        "create_unix_connection": _unix_connection(doors),
        "create_datagram_endpoint": _datagrams(doors),
        "create_server": _server(doors),
        "subprocess_exec": _program(doors),
        "subprocess_shell": _line(doors),
        "_Loop__subprocess_run": _spawned(doors),
        "_monitor_fs": _monitored(doors),
    }
    return {"Loop": _dressed(loop), "UDPTransport": _dressed({"sendto": _sent(doors)})}


def _dressed(makers: dict[str, Make]) -> dict[str, Make]:
    def dressed(make: Make) -> Make:
        return lambda original: dress(make(original), original)

    return {name: dressed(make) for name, make in makers.items()}


def _known(doors: Doors) -> Make:
    def make(original: Any) -> Any:
        doors["know_native"](original)
        return original

    return make


def native_loop_patches(doors: Doors) -> tuple[Replacement, ...]:
    """Return the rows of this area."""
    return tuple(Replacement(_MODULE, kind, _known(doors)) for kind in native_makers(doors))
