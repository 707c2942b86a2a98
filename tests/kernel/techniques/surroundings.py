"""Ways to other processes, into the kernel, and into the terminal."""

from __future__ import annotations

import array
import ctypes
import fcntl
import mmap
import os
import signal
import socket
import struct
import termios
import time
from typing import TYPE_CHECKING

from .ground import LIBC, call

if TYPE_CHECKING:
    from .ground import Technique, World


def queue_signal(w: World) -> None:
    information = ctypes.create_string_buffer(struct.pack("iii", signal.SIGUSR1, 0, -1), 128)
    call(129, w.victim, int(signal.SIGUSR1), information)


def signal_through_io(w: World) -> None:
    """Let the arrival of data signal the neighbour."""
    one, two = socket.socketpair()
    fcntl.fcntl(one, fcntl.F_SETOWN, w.victim)
    fcntl.fcntl(one, 10, signal.SIGUSR1)  # F_SETSIG
    fcntl.fcntl(one, fcntl.F_SETFL, os.O_ASYNC)
    two.send(b"x")
    got_signal(w)


def got_signal(w: World) -> None:
    """Fail unless the neighbour soon notes a signal."""
    for _ in range(20):
        if (w.outside / "signalled").exists():
            return
        time.sleep(0.01)
    raise PermissionError(1, "no signal arrived")


def limit_another(w: World) -> None:
    limit = ctypes.create_string_buffer(struct.pack("QQ", 0, 0), 16)
    call(302, w.victim, 4, limit, 0)  # RLIMIT_CORE


def make_namespace(_: World) -> None:
    call(272, 0x10000000)


def clone_namespace(_: World) -> None:
    child = call(56, 0x10000000 | signal.SIGCHLD, 0, 0, 0, 0)
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)


def clone3_namespace(_: World) -> None:
    arguments = ctypes.create_string_buffer(
        struct.pack("11Q", 0x10000000, 0, 0, 0, signal.SIGCHLD, 0, 0, 0, 0, 0, 0), 88
    )
    child = call(435, arguments, 88)
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)


def join_namespace(w: World) -> None:
    call(308, os.open(f"/proc/{w.victim}/ns/net", os.O_RDONLY), 0)


def bind_mount(w: World) -> None:
    call(165, os.fsencode(w.outside), os.fsencode(w.inside), 0, 0x1000, 0)
    call(166, os.fsencode(w.inside), 2)


def io_uring(_: World) -> None:
    call(425, 1, ctypes.create_string_buffer(120))


def bpf_map(_: World) -> None:
    attributes = ctypes.create_string_buffer(struct.pack("5I", 2, 4, 4, 1, 0), 72)
    call(321, 0, attributes, 72)


def perf_event(_: World) -> None:
    attributes = ctypes.create_string_buffer(struct.pack("IIQ", 1, 112, 0), 112)
    call(298, attributes, 0, -1, -1, 0)


def add_key(_: World) -> None:
    call(248, b"user", b"democrai", b"x", 1, -2)


def key_list(_: World) -> None:
    call(250, 0, -2, 1)  # KEYCTL_GET_KEYRING_ID of the process keyring


def message_queue(_: World) -> None:
    identifier = call(68, 0, 0o1600)
    call(71, identifier, 0, 0)


def posix_queue(_: World) -> None:
    name = f"democrai-{os.getpid()}".encode()
    call(240, name, os.O_CREAT | os.O_RDWR, 0o600, 0)
    call(241, name)


def shadow_the_broker(_: World) -> None:
    """Load a filter of one's own with a listener: two would compete for the same calls."""
    code = ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, 0x7FFF0000), 8)
    program = ctypes.create_string_buffer(struct.pack("HP", 1, ctypes.addressof(code)), 16)
    LIBC.prctl(38, 1, 0, 0, 0)
    call(317, 1, 8, program)


def other_entry(_: World) -> None:
    """Enter the kernel as a 32-bit program: getpid by `int 0x80`."""
    code = b"\x53\xb8\x14\x00\x00\x00\xcd\x80\x5b\xc3"
    page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    page.write(code)
    address = ctypes.addressof(ctypes.c_char.from_buffer(page))
    if ctypes.CFUNCTYPE(ctypes.c_int)(address)() != os.getpid():
        raise OSError(38, "no 32-bit entry")


def type_into_the_terminal(_: World) -> None:
    os.setsid()
    follower = os.openpty()[1]
    fcntl.ioctl(follower, termios.TIOCSCTTY, 0)
    fcntl.ioctl(follower, termios.TIOCSTI, b"x")


def type_with_dirty_upper_half(_: World) -> None:
    os.setsid()
    follower = os.openpty()[1]
    fcntl.ioctl(follower, termios.TIOCSCTTY, 0)
    call(16, follower, 0x100000000 | termios.TIOCSTI, b"x")


def set_line_discipline(_: World) -> None:
    follower = os.openpty()[1]
    fcntl.ioctl(follower, 0x5423, array.array("i", [0]))


SURROUNDINGS: dict[str, Technique] = {
    "signal another": (lambda w: os.kill(w.victim, signal.SIGUSR1), True),
    "signal a thread of another": (
        lambda w: call(234, w.victim, w.victim, int(signal.SIGUSR1)),
        True,
    ),
    "signal by descriptor": (
        lambda w: signal.pidfd_send_signal(os.pidfd_open(w.victim), signal.SIGUSR1),
        True,
    ),
    "queue a signal": (queue_signal, True),
    "signal through a descriptor's owner": (signal_through_io, True),
    "limit another": (limit_another, True),
    "make a user namespace": (make_namespace, True),
    "clone into a namespace": (clone_namespace, True),
    "clone3 into a namespace": (clone3_namespace, True),
    "join a namespace": (join_namespace, False),
    "mount": (bind_mount, False),
    "open a tree": (lambda w: call(428, -100, os.fsencode(w.outside), 1), False),
    "open a file system": (lambda _: call(430, b"tmpfs", 0), False),
    "change the root": (lambda w: os.chroot(w.outside), False),
    "io_uring": (io_uring, True),
    "bpf": (bpf_map, False),
    "perf": (perf_event, False),
    "userfaultfd": (lambda _: call(323, 1), True),
    "add a key": (add_key, True),
    "find a keyring": (key_list, True),
    "personality": (lambda _: call(135, 0x0400000), True),
    "System V queue": (message_queue, True),
    "POSIX queue": (posix_queue, True),
    "compare with another": (lambda w: call(312, os.getpid(), w.victim, 1, 0, 0), True),
    "watch the file system": (lambda _: call(300, 0, 0), False),
    "read the kernel's log": (lambda _: call(103, 10, 0, 0), False),
    "name the host": (lambda _: socket.sethostname(socket.gethostname()), False),
    "load a second listener": (shadow_the_broker, True),
    "32-bit entry": (other_entry, True),
    "type into the terminal": (type_into_the_terminal, False),
    "type with a dirty upper half": (type_with_dirty_upper_half, False),
    "set a line discipline": (set_line_discipline, True),
}
