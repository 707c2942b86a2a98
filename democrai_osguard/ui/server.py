"""Runs the page on a socket of its own, and prints the links that open it."""

from __future__ import annotations

import ipaddress
import socket
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import uvicorn

from democrai_osguard.errors import OsGuardError
from democrai_osguard.ui.gate import Gate
from democrai_osguard.ui.page import Page

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from democrai_osguard.approvals.records import Operator
    from democrai_osguard.approvals.service import ApprovalService

_BACKLOG = 64


class ServeError(OsGuardError, ValueError):
    """A place where the page cannot be served."""

    code = "serve_failed"


def serve(  # noqa: PLR0913 - what the command line names
    service: ApprovalService,
    operator: Operator,
    tell: Callable[[str, str], object],
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    names: Sequence[str] = (),
) -> None:
    """Serve the page until it is stopped; `tell` gets words, and the link that they are about."""
    listener = _listener(host, port)
    origins = [*own_origins(host, listener.getsockname()[1]), *map(_checked_origin, names)]
    gate = Gate(origins)
    link = names[0].rstrip("/") if names else origins[0]

    def tell_link(words: str) -> None:
        tell(words, f"{link}/?token={gate.new_link()}")

    def link_used() -> None:
        tell_link("That link is used up. For another browser:")

    if not _is_loopback(host):
        tell("Warning: other machines can reach this page, and it is not encrypted.", "")
    tell_link("Open this link; it works once:")
    page = Page(service, operator, gate, link_used)
    config = uvicorn.Config(
        page.application(),
        access_log=False,  # it would keep links
        lifespan="off",
        limit_concurrency=_BACKLOG,
        log_level="warning",
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=1,
        ws="none",
    )
    uvicorn.Server(config).run(sockets=[listener])


def own_origins(host: str, port: int) -> list[str]:
    """Return the origins under which a browser may know us."""
    names = [f"[{host}]" if ":" in host else host]
    if _is_loopback(host):
        names += [name for name in ("127.0.0.1", "localhost") if name not in names]
    return [f"http://{name}" if port == 80 else f"http://{name}:{port}" for name in names]  # noqa: PLR2004 - HTTP's own


def _listener(host: str, port: int) -> socket.socket:
    try:
        family = socket.AF_INET6 if ipaddress.ip_address(host).version == 6 else socket.AF_INET  # noqa: PLR2004 - the version of IP
    except ValueError as error:
        raise ServeError(f"{host!a} is not an address to listen on") from error
    listener = socket.socket(family)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise ServeError(f"cannot listen on {host} port {port}: {error.strerror}") from error
    return listener


def _is_loopback(host: str) -> bool:
    return ipaddress.ip_address(host).is_loopback


def _checked_origin(text: str) -> str:
    parts = urlsplit(text.rstrip("/"))
    if parts.scheme not in {"http", "https"} or not parts.netloc or parts.path or parts.query:
        raise ServeError(f"{text!a} is not an origin such as https://approvals.example.com")
    return f"{parts.scheme}://{parts.netloc}".lower()
