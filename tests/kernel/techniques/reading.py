"""Ways to read what is outside: files, and what other processes hold."""

from __future__ import annotations

import ctypes
import os
import struct
from typing import TYPE_CHECKING

from .ground import MEMORY, SECRET, call, must_be_secret, read_path

if TYPE_CHECKING:
    from .ground import Technique, World


def beside_an_o_path_folder(w: World) -> None:
    read_path("secret", dir_fd=os.open(w.outside, os.O_PATH))


def with_openat2(w: World) -> None:
    how = ctypes.create_string_buffer(struct.pack("QQQ", os.O_RDONLY, 0, 0), 24)
    descriptor = call(437, -100, os.fsencode(w.secret), how, 24)
    must_be_secret(os.read(descriptor, 64))


def through_the_working_folder(w: World) -> None:
    os.chdir(w.outside)
    read_path("/proc/self/cwd/secret")


def through_a_symbolic_link(w: World) -> None:
    (w.inside / "way").symlink_to(w.secret)
    read_path(w.inside / "way")


def through_a_hard_link(w: World) -> None:
    os.link(w.secret, w.inside / "way")
    read_path(w.inside / "way")


def by_moving_it_in(w: World) -> None:
    w.secret.rename(w.inside / "way")
    read_path(w.inside / "way")


def by_exchanging_folders(w: World) -> None:
    (w.inside / "folder").mkdir()
    exchange = 2
    call(316, -100, os.fsencode(w.outside), -100, os.fsencode(w.inside / "folder"), exchange)
    read_path(w.inside / "folder/secret")


def by_reopening_an_o_path_descriptor(w: World) -> None:
    read_path(f"/proc/self/fd/{os.open(w.secret, os.O_PATH)}")


def by_linking_an_o_path_descriptor(w: World) -> None:
    descriptor = os.open(w.secret, os.O_PATH)
    source = f"/proc/self/fd/{descriptor}".encode()
    follow = 0x400
    call(265, -100, source, -100, os.fsencode(w.inside / "way"), follow)
    read_path(w.inside / "way")


def by_file_handle(w: World) -> None:
    handle = ctypes.create_string_buffer(struct.pack("Ii", 128, 0), 136)
    mount_id = ctypes.c_int()
    call(303, -100, os.fsencode(w.secret), handle, ctypes.byref(mount_id), 0)
    descriptor = call(304, os.open(w.outside, os.O_RDONLY), handle, os.O_RDONLY)
    must_be_secret(os.read(descriptor, 64))


def from_the_memory_file_of_another(w: World) -> None:
    descriptor = os.open(f"/proc/{w.victim}/mem", os.O_RDONLY)
    must_be_secret(os.pread(descriptor, 64, ctypes.addressof(MEMORY)))


def _vector(address: int, size: int) -> object:
    return ctypes.create_string_buffer(struct.pack("PN", address, size), 16)


def from_the_memory_of_another(w: World) -> None:
    buffer = ctypes.create_string_buffer(64)
    own, other = _vector(ctypes.addressof(buffer), 64), _vector(ctypes.addressof(MEMORY), 64)
    call(310, w.victim, own, 1, other, 1, 0)
    must_be_secret(buffer.raw)


def into_the_memory_of_another(w: World) -> None:
    buffer = ctypes.create_string_buffer(b"x", 1)
    own, other = _vector(ctypes.addressof(buffer), 1), _vector(ctypes.addressof(MEMORY) + 60, 1)
    call(311, w.victim, own, 1, other, 1, 0)


def by_taking_a_descriptor(w: World) -> None:
    descriptor = call(438, os.pidfd_open(w.victim), w.victim_fd, 0)
    must_be_secret(os.pread(descriptor, 64, 0))


def by_tracing(w: World) -> None:
    seize = 0x4206
    call(101, seize, w.victim, 0, 0)


def from_shared_memory(w: World) -> None:
    address = call(30, w.shm, 0, 0)
    must_be_secret(ctypes.string_at(address, len(SECRET)))


READING: dict[str, Technique] = {
    "read a file": (lambda w: read_path(w.secret), True),
    "read by climbing": (lambda w: read_path(w.inside / "../outside/secret"), True),
    "read beside an O_PATH folder": (beside_an_o_path_folder, True),
    "read with openat2": (with_openat2, True),
    "read through a symbolic link": (through_a_symbolic_link, True),
    "read through a hard link": (through_a_hard_link, True),
    "read by moving it in": (by_moving_it_in, True),
    "read by exchanging folders": (by_exchanging_folders, True),
    "read by reopening an O_PATH descriptor": (by_reopening_an_o_path_descriptor, True),
    "read by linking an O_PATH descriptor": (by_linking_an_o_path_descriptor, True),
    "read by file handle": (by_file_handle, False),
    "read through /proc/self/root": (lambda w: read_path(f"/proc/self/root{w.secret}"), True),
    "read through /proc/self/cwd": (through_the_working_folder, True),
    "read through another's root": (lambda w: read_path(f"/proc/{w.victim}/root{w.secret}"), True),
    "read through another's folder": (lambda w: read_path(f"/proc/{w.victim}/cwd/secret"), True),
    "read through another's descriptor": (
        lambda w: read_path(f"/proc/{w.victim}/fd/{w.victim_fd}"),
        True,
    ),
    "read another's memory file": (from_the_memory_file_of_another, True),
    "read another's memory": (from_the_memory_of_another, True),
    "write another's memory": (into_the_memory_of_another, True),
    "read another's environment": (lambda w: os.open(f"/proc/{w.victim}/environ", 0), True),
    "read another's maps": (lambda w: os.open(f"/proc/{w.victim}/maps", 0), True),
    "read another's command line": (lambda w: os.open(f"/proc/{w.victim}/cmdline", 0), True),
    "take another's descriptor": (by_taking_a_descriptor, True),
    "trace another": (by_tracing, True),
    "attach another's shared memory": (from_shared_memory, True),
    "list a folder": (lambda w: os.listdir(w.outside), True),
    "read the password hashes": (lambda _: os.open("/etc/shadow", os.O_RDONLY), False),
}
