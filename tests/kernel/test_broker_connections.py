"""Connections that the broker judges and dials: by address, on the command's own socket."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import pytest
from host_features import require
from kernel.listeners import full_listener
from kernel.techniques import LIBC

from democrai_osguard_launcher import dialling
from democrai_osguard_launcher.dialling import MAX_WAITING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from kernel.conftest import Action, Confined, Free, Launch

pytestmark = pytest.mark.needs("landlock", "landlock-tcp", "seccomp")

LOOPBACK: dict[int, str] = {socket.AF_INET: "127.0.0.1", socket.AF_INET6: "::1"}
FAMILIES = [pytest.param(socket.AF_INET, id="v4"), pytest.param(socket.AF_INET6, id="v6")]
UNROUTED = "192.0.2.1"  # TEST-NET-1
THIS_MACHINE = "0.0.0.0"  # noqa: S104 - to dial
MSG_FASTOPEN = 0x20000000
CAP_NET_ADMIN = 12
SECONDS = 60
ROUNDS = 10_000


def place(family: int, port: int) -> str:
    return f"127.0.0.1:{port}" if family == socket.AF_INET else f"[::1]:{port}"


@contextlib.contextmanager
def server(family: int, kind: int = socket.SOCK_STREAM) -> Iterator[tuple[socket.socket, int]]:
    with socket.socket(family, kind) as own:
        own.bind((LOOPBACK[family], 0))
        if kind == socket.SOCK_STREAM:
            own.listen(300)
        own.settimeout(SECONDS)
        yield own, own.getsockname()[1]


def opened(port: int) -> socket.socket:
    """Return a connection; `create_connection` would read modules, which no rule allows here."""
    client = socket.socket()
    client.connect(("127.0.0.1", port))
    return client


def dial(
    family: int, port: int, *, blocking: bool = True, kind: int = socket.SOCK_STREAM
) -> Action:
    """Connect and say something, the way an event loop or a plain program does it."""

    def act() -> None:
        with socket.socket(family, kind) as client:
            client.setblocking(blocking)
            code = client.connect_ex((LOOPBACK[family], port))
            if code == errno.EINPROGRESS and not blocking:
                select.select([], [client], [], SECONDS)
                code = client.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code:
                raise OSError(code, os.strerror(code))
            client.send(b"hello")

    return act


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM])
@pytest.mark.parametrize("blocking", [True, False])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_connection_goes_where_a_rule_leads_and_nowhere_else(
    family: int, blocking: bool, kind: int, free: Free, confined: Confined
) -> None:
    with server(family, kind) as (own, port), server(family, kind) as (_, other):
        rule = ("connect", place(family, port))
        assert confined(dial(family, port, blocking=blocking, kind=kind), rule) == "allowed"
        peer = own.accept()[0] if kind == socket.SOCK_STREAM else own
        assert peer.recv(100) == b"hello"
        if peer is not own:
            peer.close()
        refused = dial(family, other, blocking=blocking, kind=kind)
        assert confined(refused, rule) == "EACCES"
        assert free(refused) == "allowed"


@pytest.mark.parametrize("family", FAMILIES)
def test_nobody_listens_is_said_as_ever(family: int, free: Free, confined: Confined) -> None:
    with server(family) as (_, port):
        pass
    for blocking in (True, False):
        act = dial(family, port, blocking=blocking)
        assert confined(act, ("connect", place(family, port))) == free(act) == "ECONNREFUSED"


def test_other_writings_of_an_address_are_that_address(free: Free, confined: Confined) -> None:
    def to(family: int, host: str, port: int) -> Action:
        return lambda: socket.socket(family).connect((host, port))

    with server(socket.AF_INET) as (_, port), server(socket.AF_INET) as (_, other):
        rule = ("connect", f"127.0.0.1:{port}")
        for family, host in ((socket.AF_INET6, "::ffff:127.0.0.1"), (socket.AF_INET, THIS_MACHINE)):
            assert confined(to(family, host, port), rule) == "allowed"
            assert confined(to(family, host, other), rule) == "EACCES"
            assert free(to(family, host, other)) == "allowed"
        elsewhere = ("connect", f"192.0.2.1:{port}")
        assert confined(to(socket.AF_INET6, "::ffff:127.0.0.1", port), elsewhere) == "EACCES"
        assert confined(to(socket.AF_INET, THIS_MACHINE, port), elsewhere) == "EACCES"


def test_a_second_connect_and_a_disconnect_are_as_ever(free: Free, confined: Confined) -> None:
    with server(socket.AF_INET) as (_, port), server(socket.AF_INET, socket.SOCK_DGRAM) as (_, udp):

        def act() -> None:
            client = opened(port)
            assert client.connect_ex(("127.0.0.1", port)) == errno.EISCONN
            datagram = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            datagram.connect(("127.0.0.1", udp))
            unspecified = struct.pack("=H14x", socket.AF_UNSPEC)
            assert LIBC.connect(datagram.fileno(), unspecified, len(unspecified)) == 0
            with pytest.raises(OSError, match="Destination address required"):
                datagram.send(b"x")
            slow = socket.socket()
            slow.setblocking(False)
            assert slow.connect_ex(("127.0.0.1", port)) == errno.EINPROGRESS
            select.select([], [slow], [], SECONDS)
            assert slow.connect_ex(("127.0.0.1", port)) == 0
            assert slow.connect_ex(("127.0.0.1", port)) == errno.EISCONN
            short = struct.pack("=HH", socket.AF_INET, port)
            assert LIBC.connect(socket.socket().fileno(), short, len(short)) == -1
            assert ctypes.get_errno() == errno.EINVAL

        rules = [("connect", f"127.0.0.1:{number}") for number in (port, udp)]
        assert free(act) == "allowed"
        assert confined(act, *rules) == "allowed"


def test_what_is_no_socket_is_an_error(confined: Confined) -> None:
    def act(number: int) -> Action:
        address = struct.pack("=H2s4s8x", socket.AF_INET, b"\0\x50", b"\x7f\0\0\1")

        def connect() -> None:
            if LIBC.connect(number, address, len(address)) == -1:
                raise OSError(ctypes.get_errno(), "")

        return connect

    assert confined(act(999), ("connect", "127.0.0.1:80")) == "EBADF"
    assert confined(act(1), ("connect", "127.0.0.1:80")) == "ENOTSOCK"


@pytest.fixture
def slow() -> Iterator[int]:
    """Return the port of a listener that answers nobody any more."""
    with full_listener() as port:
        yield port


def test_a_slow_connection_holds_up_nobody_and_ends_with_its_time(
    slow: int, confined: Confined
) -> None:
    with server(socket.AF_INET) as (_, port):

        def act() -> None:
            waiting = socket.socket()
            waiting.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("qq", 1, 0))
            codes: list[int] = []
            thread = threading.Thread(
                target=lambda: codes.append(waiting.connect_ex(("127.0.0.1", slow)))
            )
            thread.start()
            for _ in range(20):
                opened(port).close()
            thread.join()
            assert codes == [errno.EINPROGRESS], codes

        grants = [("connect", f"127.0.0.1:{number}") for number in (port, slow)]
        assert confined(act, *grants) == "allowed"


def test_a_signal_interrupts_a_connection_that_waits(
    slow: int, free: Free, confined: Confined
) -> None:

    class Alarm(Exception):
        pass

    def act() -> None:
        def ring(*_: object) -> None:
            raise Alarm

        signal.signal(signal.SIGALRM, ring)
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        with pytest.raises(Alarm):
            socket.socket().connect(("127.0.0.1", slow))

    assert free(act) == "allowed"
    assert confined(act, ("connect", f"127.0.0.1:{slow}")) == "allowed"


def test_who_is_killed_while_it_waits_leaves_nothing_behind(slow: int, confined: Confined) -> None:
    with server(socket.AF_INET) as (_, port):

        def act() -> None:
            for _ in range(5):
                child = os.fork()
                if child == 0:
                    socket.socket().connect(("127.0.0.1", slow))
                    os._exit(0)
                os.sched_yield()
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
            opened(port).close()

        grants = [("connect", f"127.0.0.1:{number}") for number in (port, slow)]
        assert confined(act, *grants) == "allowed"


def test_two_hundred_connections_at_once(confined: Confined) -> None:
    assert MAX_WAITING >= 200
    with server(socket.AF_INET) as (own, port):

        def act() -> None:
            failures: list[object] = []

            def connect() -> None:
                try:
                    with opened(port) as client:
                        client.sendall(b"x")
                except OSError as error:
                    failures.append(error)

            threads = [threading.Thread(target=connect) for _ in range(200)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert not failures, failures

        assert confined(act, ("connect", f"127.0.0.1:{port}")) == "allowed"
        for _ in range(200):
            peer, _ = own.accept()
            assert peer.recv(10) == b"x"
            peer.close()


def address_of(port: int) -> bytes:
    return struct.pack("=H", socket.AF_INET) + struct.pack(">H4s8x", port, b"\x7f\0\0\1")


def rewriting(call: str, port: int, closed: int) -> Action:
    """Return an act that sends to an address whose port another thread changes all the time."""

    def act() -> None:
        memory = ctypes.create_string_buffer(address_of(port))
        both = [struct.pack(">H", number) for number in (port, closed)]
        stop = threading.Event()

        def flip() -> None:
            while not stop.is_set():
                for each in both:
                    ctypes.memmove(ctypes.addressof(memory) + 2, each, 2)

        thread = threading.Thread(target=flip)
        thread.start()
        client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        for _ in range(ROUNDS):
            _send_raw(call, client.fileno(), memory)
        stop.set()
        thread.join()

    return act


def arrived(at: socket.socket) -> int:
    at.setblocking(False)
    count = 0
    with contextlib.suppress(BlockingIOError):
        while at.recv(10):
            count += 1
    return count


@pytest.mark.parametrize("call", ["connect", "sendto", "sendmsg"])
def test_an_address_that_another_thread_rewrites_leads_nowhere_else(
    call: str, confined: Confined, free: Free
) -> None:
    udp = socket.SOCK_DGRAM
    with server(socket.AF_INET, udp) as (own, port), server(socket.AF_INET, udp) as (other, closed):
        act = rewriting(call, port, closed)
        assert confined(act, ("connect", f"127.0.0.1:{port}")) == "allowed"
        assert (arrived(own) > 0, arrived(other)) == (True, 0)
        # The control: sooner or later the other port is met.
        met = (free(act) == "allowed" and arrived(other) > 0 for _ in range(100))
        assert any(met)


def _send_raw(call: str, number: int, memory: ctypes.Array[ctypes.c_char]) -> None:
    at = ctypes.addressof(memory)
    if call == "connect":
        if LIBC.connect(number, ctypes.c_void_p(at), 16) == 0:
            os.write(number, b"x")
    elif call == "sendto":
        LIBC.sendto(number, b"x", 1, 0, ctypes.c_void_p(at), 16)
    else:
        text = ctypes.create_string_buffer(b"x")
        piece = (ctypes.c_uint64 * 2)(ctypes.addressof(text), 1)
        header = (ctypes.c_uint64 * 7)(at, 16, ctypes.addressof(piece), 1, 0, 0, 0)
        LIBC.sendmsg(number, ctypes.byref(header), 0)


SENDS: dict[str, Callable[[socket.socket, tuple[str, int]], object]] = {
    "sendto": lambda own, to: own.sendto(b"hello", to),
    "sendmsg": lambda own, to: own.sendmsg([b"he", b"llo"], [], 0, to),
    "sendmsg that says its type of service": lambda own, to: own.sendmsg(
        [b"hello"], [(socket.IPPROTO_IP, socket.IP_TOS, struct.pack("i", 4))], 0, to
    ),
}


@pytest.mark.parametrize("way", SENDS)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_datagram_goes_where_a_rule_leads(
    way: str, family: int, free: Free, confined: Confined
) -> None:
    udp = socket.SOCK_DGRAM

    def send(port: int) -> Action:
        return lambda: SENDS[way](socket.socket(family, udp), (LOOPBACK[family], port))

    with server(family, udp) as (own, port), server(family, udp) as (_, other):
        if "type" in way and family == socket.AF_INET6:
            return
        rule = ("connect", place(family, port))
        assert confined(send(port), rule) == "allowed"
        assert own.recv(100) == b"hello"
        assert confined(send(other), rule) == "EACCES"
        assert free(send(other)) == "allowed"


def test_many_messages_in_one_call_are_each_judged(confined: Confined) -> None:
    udp = socket.SOCK_DGRAM
    with server(socket.AF_INET, udp) as (own, port), server(socket.AF_INET, udp) as (other, closed):

        def act() -> None:
            texts = [ctypes.create_string_buffer(b"m%d" % each) for each in range(3)]
            places = [address_of(each) for each in (port, port, closed)]
            names = [ctypes.create_string_buffer(each) for each in places]
            pieces = [(ctypes.c_uint64 * 2)(ctypes.addressof(each), 2) for each in texts]
            many = (ctypes.c_uint64 * 24)()
            for each in range(3):
                start = each * 8
                many[start : start + 4] = [
                    ctypes.addressof(names[each]), 16, ctypes.addressof(pieces[each]), 1
                ]  # fmt: skip
            client = socket.socket(socket.AF_INET, udp)
            assert LIBC.sendmmsg(client.fileno(), ctypes.byref(many), 3, 0) == 2
            assert [many[each * 8 + 7] & 0xFFFFFFFF for each in range(3)] == [2, 2, 0]

        assert confined(act, ("connect", f"127.0.0.1:{port}")) == "allowed"
        assert (own.recv(10), own.recv(10)) == (b"m0", b"m1")
        other.setblocking(False)
        with pytest.raises(BlockingIOError):
            other.recv(10)


def test_streams_and_pairs_send_as_ever(free: Free, confined: Confined, tmp_path: Path) -> None:
    """What has no address takes the same way: much at once, descriptors, a broken pipe."""
    (tmp_path / "file").write_text("seen")

    def act() -> None:
        left, right = socket.socketpair()
        socket.send_fds(left, [b"x"], [os.open(tmp_path / "file", os.O_RDONLY)])
        _, (received,), _, _ = socket.recv_fds(right, 10, 4)
        assert os.read(received, 10) == b"seen"
        much = b"y" * 3_000_000
        reader = threading.Thread(target=_drain, args=(right, len(much)))
        reader.start()
        sent = 0
        while sent < len(much):
            sent += left.sendmsg([much[sent:]])
        reader.join()
        right.close()
        with pytest.raises(BrokenPipeError):
            left.sendmsg([b"x"])
        broken, end = socket.socketpair()
        end.close()
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)
            broken.sendmsg([b"x"])
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGPIPE

    assert free(act) == "allowed"
    assert confined(act, ("connect", "127.0.0.1:80"), ("read", tmp_path)) == "allowed"


def _drain(end: socket.socket, size: int) -> None:
    while size:
        size -= len(end.recv(65536))


def test_no_message_says_another_way(confined: Confined, free: Free) -> None:
    """Options of a packet could send it elsewhere first; nobody who is confined sets them."""
    udp = socket.SOCK_DGRAM
    loose = b"\x83\x07\x04" + socket.inet_aton("127.0.0.2") + b"\0"  # a loose source route
    with server(socket.AF_INET, udp) as (_, port):
        to = ("127.0.0.1", port)

        def by_message() -> None:
            socket.socket(socket.AF_INET, udp).sendmsg(
                [b"x"], [(socket.IPPROTO_IP, socket.IP_RETOPTS, loose)], 0, to
            )

        def by_option() -> None:
            own = socket.socket(socket.AF_INET, udp)
            own.setsockopt(socket.IPPROTO_IP, socket.IP_OPTIONS, loose)

        rule = ("connect", f"127.0.0.1:{port}")
        for act in (by_message, by_option):
            assert confined(act, rule) == "EPERM"
        # Of an ordinary user the kernel takes no source route anyway.
        assert free(by_option) == ("allowed" if os.geteuid() == 0 else "EPERM")


def test_sending_while_connecting_stays_refused(confined: Confined, free: Free) -> None:
    with server(socket.AF_INET) as (_, port):

        def act() -> None:
            socket.socket().sendto(b"x", MSG_FASTOPEN, ("127.0.0.1", port))

        assert confined(act, ("connect", f"127.0.0.1:{port}")) == "EPERM"
        assert free(act) == "allowed"


def test_a_broker_that_is_killed_lets_nothing_through() -> None:
    with server(socket.AF_INET) as (own, port):
        script = (
            "import os, signal, socket, sys\nprint(os.getppid(), flush=True)\nsys.stdin.read(1)\n"
            f"socket.create_connection(('127.0.0.1', {port})); print('connected', flush=True)"
        )
        command = [sys.executable, "-I", "-m", "democrai_osguard_launcher"]
        rules = ["--connect", f"127.0.0.1:{port}", "--", sys.executable, "-I", "-c", script]
        with subprocess.Popen(
            [*command, *rules], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as launched:
            assert launched.stdin is not None
            assert launched.stdout is not None
            broker = int(launched.stdout.readline())
            assert broker == launched.pid
            os.kill(broker, signal.SIGKILL)
            with contextlib.suppress(BrokenPipeError):
                os.write(launched.stdin.fileno(), b"x")  # past a buffer that closing would flush
            assert launched.stdout.read() == ""
        own.settimeout(0)
        with pytest.raises(BlockingIOError):
            own.accept()


PYTHON = "import urllib.request as r; print(r.urlopen('http://127.0.0.1:{port}/').read().decode())"
NODE = "fetch('http://127.0.0.1:{port}/').then(r => r.text()).then(console.log)"
PROGRAMS: dict[str, list[str]] = {
    "python": [sys.executable, "-I", "-c", PYTHON],
    "curl": ["curl", "-sS", "--noproxy", "*", "http://127.0.0.1:{port}/"],
    "node": ["node", "-e", NODE],
}


@pytest.fixture
def page() -> Iterator[int]:
    """Serve a page to whoever comes."""
    with server(socket.AF_INET) as (own, port):

        def serve() -> None:
            while True:
                try:
                    peer, _ = own.accept()
                except OSError:
                    return
                with peer:
                    peer.recv(4096)
                    peer.sendall(b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello")

        thread = threading.Thread(target=serve)
        thread.start()
        yield port
        own.shutdown(socket.SHUT_RDWR)
        thread.join()


@pytest.mark.parametrize("program", PROGRAMS)
def test_programs_reach_what_a_rule_names(
    program: str, page: int, launch: Launch, tmp_path: Path
) -> None:
    if program != "python":
        require(program)
    words = [word.format(port=page) if "{port}" in word else word for word in PROGRAMS[program]]
    environment = {"HOME": str(tmp_path), "no_proxy": "*"}
    reached = launch("--connect", f"127.0.0.1:{page}", "--", *words, environment=environment)
    assert (reached.stdout.strip(), reached.returncode) == ("hello", 0), reached.stderr
    other = launch("--connect", "192.0.2.1:80", "--", *words, environment=environment)
    assert "hello" not in other.stdout
    assert other.returncode != 0


def test_the_receipt_has_tried_the_broker(launch: Launch, tmp_path: Path) -> None:
    file = tmp_path / "receipt.json"
    assert launch("--connect", f"{UNROUTED}:80", "--receipt", file, "--", "true").returncode == 0
    tried = {each["act"]: each["outcome"] for each in json.loads(file.read_text())["tried"]}
    assert tried["TCP to an address that no rule names"] == "EACCES"
    assert tried[f"UDP towards {UNROUTED}"] == "allowed"


def test_an_ordinary_user_has_the_same_broker(confined: Confined) -> None:
    uid = 65534 if os.geteuid() == 0 else None
    with server(socket.AF_INET) as (_, port), server(socket.AF_INET) as (_, other):
        rule = ("connect", f"127.0.0.1:{port}")
        for blocking in (True, False):
            act = dial(socket.AF_INET, port, blocking=blocking)
            assert confined(act, rule, uid=uid) == "allowed"
            refused = dial(socket.AF_INET, other, blocking=blocking)
            assert confined(refused, rule, uid=uid) == "EACCES"


def test_a_caller_that_hides_its_memory_connects_to_nobody(confined: Confined) -> None:
    uid = 65534 if os.geteuid() == 0 else None
    with server(socket.AF_INET) as (_, port):

        def act() -> None:
            LIBC.prctl(4, 0)
            opened(port)

        assert confined(act, ("connect", f"127.0.0.1:{port}"), uid=uid) in {"EACCES", "EPERM"}


@pytest.mark.needs("root")
def test_the_broker_of_root_has_no_rights_over_the_network(confined: Confined) -> None:
    """A netlink message that the broker sends must not be able to do more than the command."""

    def act() -> None:
        with contextlib.suppress(OSError):  # it answers only once it has given them up
            socket.create_connection(("127.0.0.1", 80))
        with open(f"/proc/{os.getppid()}/status", encoding="utf-8") as file:
            (line,) = (line for line in file if line.startswith("CapEff"))
        assert not int(line.split()[1], 16) & 1 << CAP_NET_ADMIN, line

    assert confined(act, ("connect", "127.0.0.1:80"), ("read", "/proc")) == "allowed"


def full_pair() -> tuple[socket.socket, socket.socket]:
    """Return two ends, of which the first has no room to send any more."""
    end, other = socket.socketpair()
    end.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while True:
            end.send(bytes(4096))
    end.setblocking(True)
    return end, other


def test_what_waits_to_be_sent_is_not_kept_without_end(
    confined: Confined, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each call is copied into the broker; all that wait together have a limit."""
    much, many, room = 1 << 20, 8, 4
    monkeypatch.setattr(dialling, "MAX_CONTENT", room * much)
    said: list[str] = []

    def send(end: socket.socket) -> None:
        try:
            end.sendmsg([bytes(much)])
        except OSError as error:
            said.append(errno.errorcode[error.errno or 0])

    def act() -> None:
        pairs = [full_pair() for _ in range(many)]
        threads = [threading.Thread(target=send, args=(end,)) for end, _ in pairs]
        for each in threads:
            each.start()
        while len(said) < many - room:
            time.sleep(0.01)
        for (_, other), thread in zip(pairs, threads, strict=True):
            other.close()
            thread.join()
        assert said[: many - room] == ["ENOBUFS"] * (many - room)
        assert said[many - room :] == ["EPIPE"] * room

    assert confined(act, ("connect", "127.0.0.1:9")) == "allowed"
