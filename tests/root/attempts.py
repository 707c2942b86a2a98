"""Ways to reach an address, each a function that returns what the other end answered."""

from __future__ import annotations

import os
import socket
import struct
from typing import Final

from root import ring
from root.lab import PATIENCE, PORT

IPPROTO_MPTCP: Final = 262
_IPV6_CHECKSUM: Final = 7
_ICMP_ECHO: Final = {4: 8, 6: 128}


def _family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def _stream(address: str, port: int, protocol: int, family: socket.AddressFamily) -> bytes:
    with socket.socket(family, socket.SOCK_STREAM, protocol) as talk:
        talk.settimeout(PATIENCE)
        talk.connect((address, port))
        talk.send(b"hello")
        return talk.recv(64)


def tcp(address: str, port: int = PORT) -> bytes:
    return _stream(address, port, socket.IPPROTO_TCP, _family(address))


def tcp_mapped(address: str, port: int = PORT) -> bytes:
    return _stream(f"::ffff:{address}", port, socket.IPPROTO_TCP, socket.AF_INET6)


def mptcp(address: str, port: int = PORT) -> bytes:
    return _stream(address, port, IPPROTO_MPTCP, _family(address))


def fast_open(address: str, port: int = PORT) -> bytes:
    with socket.socket(_family(address), socket.SOCK_STREAM) as talk:
        for option in (socket.SO_SNDTIMEO, socket.SO_RCVTIMEO):  # blocking, but not for ever
            talk.setsockopt(socket.SOL_SOCKET, option, struct.pack("=qq", int(PATIENCE), 0))
        talk.sendto(b"hello", socket.MSG_FASTOPEN, (address, port))
        return talk.recv(64)


def udp(address: str, port: int = PORT) -> bytes:
    with socket.socket(_family(address), socket.SOCK_DGRAM) as talk:
        talk.settimeout(PATIENCE)
        talk.sendto(b"hello", (address, port))
        return talk.recv(64)


def udp_mapped(address: str, port: int = PORT) -> bytes:
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as talk:
        talk.settimeout(PATIENCE)
        talk.sendto(b"hello", (f"::ffff:{address}", port))
        return talk.recv(64)


def udp_connected(address: str, port: int = PORT) -> bytes:
    with socket.socket(_family(address), socket.SOCK_DGRAM) as talk:
        talk.settimeout(PATIENCE)
        talk.connect((address, port))
        talk.send(b"hello")
        return talk.recv(64)


def udp_mapped_connected(address: str, port: int = PORT) -> bytes:
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as talk:
        talk.settimeout(PATIENCE)
        talk.connect((f"::ffff:{address}", port))
        talk.send(b"hello")
        return talk.recv(64)


def mptcp_mapped(address: str, port: int = PORT) -> bytes:
    return _stream(f"::ffff:{address}", port, IPPROTO_MPTCP, socket.AF_INET6)


def ip_options(address: str, port: int = PORT) -> bytes:
    """Send a datagram with options in its header, the place where a source route would stand."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as talk:
        talk.settimeout(PATIENCE)
        talk.setsockopt(socket.IPPROTO_IP, socket.IP_OPTIONS, b"\x01\x01\x01\x00")
        talk.sendto(b"hello", (address, port))
        return talk.recv(64)


def _checksum(data: bytes) -> int:
    total: int = sum(struct.unpack(f">{len(data) // 2}H", data))
    total = (total >> 16) + (total & 0xFFFF)
    return ~(total + (total >> 16)) & 0xFFFF


def _echo(address: str, kind: int) -> bytes:
    version = 6 if ":" in address else 4
    protocol = socket.IPPROTO_ICMPV6 if version == 6 else socket.IPPROTO_ICMP
    with socket.socket(_family(address), kind, protocol) as talk:
        talk.settimeout(PATIENCE)
        body = struct.pack(">BBHHH", _ICMP_ECHO[version], 0, 0, os.getpid() & 0xFFFF, 1) + b"hell"
        body = body[:2] + struct.pack(">H", _checksum(body)) + body[4:]
        talk.sendto(body, (address, 0))
        while True:
            answer = talk.recv(256)
            offset = 20 if version == 4 and kind == socket.SOCK_RAW else 0
            if answer[offset] in {0, 129}:
                return b"ok"


def icmp_raw(address: str, _port: int = PORT) -> bytes:
    return _echo(address, socket.SOCK_RAW)


def ping(address: str, _port: int = PORT) -> bytes:
    return _echo(address, socket.SOCK_DGRAM)


def raw_udp(address: str, port: int = PORT) -> bytes:
    """Write the UDP header by hand, and look whether the listener answers."""
    with (
        socket.socket(_family(address), socket.SOCK_RAW, socket.IPPROTO_UDP) as talk,
        socket.socket(_family(address), socket.SOCK_DGRAM) as ear,
    ):
        ear.settimeout(PATIENCE)
        ear.bind((address, 0))
        header = struct.pack(">HHHH", ear.getsockname()[1], port, 8 + 5, 0)
        talk.bind((address, 0))
        if talk.family == socket.AF_INET6:  # there the kernel must fill the checksum in
            talk.setsockopt(socket.IPPROTO_IPV6, _IPV6_CHECKSUM, 6)
        talk.sendto(header + b"hello", (address, 0))
        return ear.recv(64)


def io_uring(address: str, port: int = PORT) -> bytes:
    """Connect through a submission ring, then talk as usual."""
    with socket.socket(_family(address), socket.SOCK_STREAM) as talk:
        ring.connect(talk, address, port)
        talk.settimeout(PATIENCE)
        talk.send(b"hello")
        return talk.recv(64)


def io_uring_udp(address: str, port: int = PORT) -> bytes:
    """Send a datagram through a submission ring, then listen as usual."""
    with socket.socket(_family(address), socket.SOCK_DGRAM) as talk:
        ring.send_to(talk, b"hello", address, port)
        talk.settimeout(PATIENCE)
        return talk.recv(64)
