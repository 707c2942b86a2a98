"""Servers on this machine that the libraries talk to: HTTP with redirects, and a websocket."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterator


class Handler(BaseHTTPRequestHandler):
    """Answers `METHOD path`, and with a redirect at /v1/away."""

    protocol_version = "HTTP/1.1"

    def _answer(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        self.rfile.read(length)
        if self.path.startswith("/v1/away"):
            self.send_response(302)
            self.send_header("Location", "/secret")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        body = f"{self.command} {self.path}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = do_PUT = _answer  # noqa: N815 - the server's own names

    def log_message(self, *_args: object) -> None:
        """Say nothing."""


@contextmanager
def http_server() -> Iterator[int]:
    """Serve `METHOD path` for every path, and a redirect at /v1/away; yield the port."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def websocket_server(context: ssl.SSLContext | None = None) -> Iterator[int]:
    """Serve a websocket that repeats what it is told; yield the port."""
    from websockets.sync.server import serve  # noqa: PLC0415 - only these tests need it

    def repeat(connection) -> None:  # type: ignore[no-untyped-def] # noqa: ANN001
        for message in connection:
            connection.send(message)

    with serve(repeat, "127.0.0.1", 0, ssl=context) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server.socket.getsockname()[1]
        finally:
            server.shutdown()
