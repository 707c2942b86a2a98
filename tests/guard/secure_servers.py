"""TLS servers with a certificate authority of the test's own, and a proxy that notes its use."""

from __future__ import annotations

import datetime as dt
import ipaddress
import select
import socket
import socketserver
import ssl
import threading
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from guard.servers import Handler

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_HEAD_LIMIT = 65_536


def make_certificates(folder: Path) -> tuple[Path, Path]:
    """Return files of an authority's certificate, and of a server's certificate with its key."""
    authority_key, server_key = _new_key(), _new_key()
    issuer = _name("test authority")
    authority = (
        _certificate(issuer, issuer, authority_key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(authority_key, hashes.SHA256())
    )
    names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    server = (
        _certificate(_name("localhost"), issuer, server_key)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    pem, kind = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    key = server_key.private_bytes(pem, kind, serialization.NoEncryption())
    ca, own = folder / "authority.pem", folder / "server.pem"
    ca.write_bytes(authority.public_bytes(pem))
    own.write_bytes(server.public_bytes(pem) + key)
    return ca, own


def _new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _certificate(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
    )


def server_context(own: Path) -> ssl.SSLContext:
    """Return what a server encrypts with."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(own)
    # A ticket comes after the handshake: a client that reads in one thread and writes in another
    # (websockets.sync) may take it in both at once, which OpenSSL calls an internal error.
    context.num_tickets = 0
    return context


@contextmanager
def https_server(own: Path) -> Iterator[int]:
    """Serve as `http_server` does, encrypted; yield the port."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    # The handshake waits until a thread of its own reads, so that a silent client blocks nobody.
    server.socket = server_context(own).wrap_socket(
        server.socket, server_side=True, do_handshake_on_connect=False
    )
    with _running(server) as port:
        yield port


class _Proxy(socketserver.BaseRequestHandler):
    """Passes on what it is asked for, by CONNECT or by a whole URL, and notes each request line."""

    asked: list[str]

    def handle(self) -> None:
        head = b""
        while b"\r\n\r\n" not in head and len(head) < _HEAD_LIMIT:
            more = self.request.recv(4096)
            if not more:
                return
            head += more
        line, _, rest = head.partition(b"\r\n")
        self.asked.append(line.decode())
        method, target, version = line.decode().split()
        url = urlsplit(f"//{target}" if method == "CONNECT" else target)
        with socket.create_connection((str(url.hostname), url.port or 80)) as far:
            if method == "CONNECT":
                self.request.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            else:
                far.sendall(f"{method} {url.path or '/'} {version}\r\n".encode() + rest)
            _relay(self.request, far)


def _relay(one: socket.socket, other: socket.socket) -> None:
    pairs = {one: other, other: one}
    while True:
        for ready in select.select([one, other], [], [])[0]:
            try:
                data = ready.recv(65_536)
                if not data:
                    return
                pairs[ready].sendall(data)
            except OSError:
                return


@contextmanager
def proxy_server() -> Iterator[tuple[int, list[str]]]:
    """Serve a proxy; yield its port, and the list of what it was asked for."""
    asked: list[str] = []
    handler = type("Proxy", (_Proxy,), {"asked": asked})
    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    with _running(server) as port:
        yield port, asked


@contextmanager
def _running(server: socketserver.TCPServer) -> Iterator[int]:
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield int(server.server_address[1])
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
