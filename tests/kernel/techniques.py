"""Ways out of a sandbox, each a function of a world. One that returns has got out."""

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
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.syscall.restype = ctypes.c_long
SECRET = b"what nobody inside may know"
MEMORY = ctypes.create_string_buffer(SECRET, 64)  # at the same address in every fork


class World(NamedTuple):
    """A folder inside with every right but execute, one outside with none, and a neighbour."""

    inside: Path
    outside: Path
    victim: int  # a process of the same user, with the secret open and in its memory
    victim_fd: int
    tcp: int
    udp: int
    shm: int

    @property
    def secret(self) -> Path:
        return self.outside / "secret"


def call(number: int, *arguments: object) -> int:
    wide = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    result = int(LIBC.syscall(ctypes.c_long(number), *wide))
    if result == -1:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def must_be_secret(data: bytes) -> None:
    if not data.startswith(SECRET):
        raise AssertionError(f"not the secret: {data!r}")


def read_path(path: str | Path, *, dir_fd: int | None = None) -> None:
    descriptor = os.open(path, os.O_RDONLY, dir_fd=dir_fd)
    must_be_secret(os.read(descriptor, 64))


# --- reading what is outside -----------------------------------------------------------------


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


# --- changing what is outside ----------------------------------------------------------------


def by_opening_to_write(w: World) -> None:
    os.open(w.secret, os.O_WRONLY)


def by_emptying_while_reading(w: World) -> None:
    os.open(w.secret, os.O_RDONLY | os.O_TRUNC)


def by_opening_for_nothing(w: World) -> None:
    os.open(w.secret, os.O_ACCMODE)  # neither reads nor writes, and a driver is opened all the same


def by_an_unnamed_file(w: World) -> None:
    os.open(w.outside, os.O_TMPFILE | os.O_RDWR)


def by_an_unnamed_file_that_lends(w: World) -> None:
    descriptor = os.open(w.inside, os.O_TMPFILE | os.O_RDWR, 0o6755)
    follow = 0x400
    source, target = f"/proc/self/fd/{descriptor}".encode(), w.inside / "lends"
    call(265, -100, source, -100, os.fsencode(target), follow)
    if not target.stat().st_mode & 0o6000:
        raise PermissionError(1, "it lends nothing")


def with_fchmodat2(w: World) -> None:
    call(452, -100, os.fsencode(w.secret), 0o777, 0)


def with_setxattrat(w: World) -> None:
    value = ctypes.create_string_buffer(b"x", 1)
    arguments = ctypes.create_string_buffer(struct.pack("PII", ctypes.addressof(value), 1, 0), 16)
    call(463, -100, os.fsencode(w.secret), 0, b"user.x", arguments, 16)


def with_file_setattr(w: World) -> None:
    attributes = ctypes.create_string_buffer(struct.pack("QIIII", 0x40, 0, 0, 0, 0), 24)
    call(469, -100, os.fsencode(w.secret), attributes, 24, 0)


def readable(w: World) -> int:
    """Open a file that reading was granted for, and nothing else."""
    return os.open(w.inside.parent / "readable/file", os.O_RDONLY)


def with_inode_flags(w: World) -> None:
    nodump = 0x40
    fcntl.ioctl(readable(w), 0x40086602, struct.pack("L", nodump))


def with_a_generation(number: int) -> Callable[[World], object]:
    return lambda w: fcntl.ioctl(readable(w), number, struct.pack("l", 4711))


def by_a_device(w: World) -> None:
    os.mknod(w.inside / "zero", 0o20666, os.makedev(1, 5))


def by_a_whiteout(w: World) -> None:
    (w.inside / "file").write_text("x")
    whiteout = 4
    source, target = os.fsencode(w.inside / "file"), os.fsencode(w.inside / "other")
    call(316, -100, source, -100, target, whiteout)


def open_to_write(path: str) -> Callable[[World], object]:
    return lambda w: os.open(path.format(victim=w.victim), os.O_WRONLY)


# --- running what may not run ----------------------------------------------------------------


def _run(start: Callable[[], object]) -> None:
    child = os.fork()
    if child == 0:
        try:
            start()
        except OSError as error:
            os._exit(error.errno or 1)
        os._exit(1)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code:
        raise OSError(abs(code), os.strerror(abs(code)))


TRUE = "/usr/bin/true"
LOADER = "/lib64/ld-linux-x86-64.so.2"


def execute(path: str | Path, *arguments: str) -> None:
    _run(lambda: os.execv(path, [str(path), *arguments]))  # noqa: S606


def by_copying_a_program(w: World) -> None:
    copy = w.inside / "program"
    copy.write_bytes(PROGRAM)
    copy.chmod(0o755)
    execute(copy)


def by_the_loader(_: World) -> None:
    cannot_open = 127
    try:
        execute(LOADER, TRUE)
    except OSError as error:
        if error.errno == cannot_open:
            raise PermissionError(13, "the loader cannot read it") from error
        raise


_COPY = Path(__file__).with_name("true")  # where a sandbox may not read the real one
PROGRAM = (_COPY if _COPY.exists() else Path(TRUE)).read_bytes()


def by_a_memory_file(_: World) -> None:
    descriptor = call(319, b"program", 0)
    os.write(descriptor, PROGRAM)
    _run(lambda: os.execve(descriptor, ["true"], {}))  # noqa: S606


def by_a_memory_file_without_a_seal(_: World) -> None:
    descriptor = call(319, b"program", 0x10)  # MFD_EXEC
    os.write(descriptor, PROGRAM)
    _run(lambda: os.execv(f"/proc/self/fd/{descriptor}", ["true"]))  # noqa: S606


def by_execveat(_: World) -> None:
    descriptor = os.open(TRUE, os.O_PATH)
    empty = ctypes.create_string_buffer(1)
    argv = (ctypes.c_char_p * 2)(b"true", None)
    _run(lambda: call(322, descriptor, empty, argv, None, 0x1000))


def by_a_script(w: World) -> None:
    script = w.inside / "script"
    script.write_text(f"#!{TRUE}\n")
    script.chmod(0o755)
    execute(script)


def by_a_link_to_a_program(w: World) -> None:
    (w.inside / "program").symlink_to(TRUE)
    execute(w.inside / "program")


# --- other processes, the kernel, the terminal ------------------------------------------------


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


# --- sockets ---------------------------------------------------------------------------------


def tcp(family: int, address: str) -> Callable[[World], object]:
    return lambda w: socket.socket(family).connect((address, w.tcp))


def udp(w: World) -> None:
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", w.udp))


def mptcp(w: World) -> None:
    socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262).connect(("127.0.0.1", w.tcp))


def fast_open(w: World) -> None:
    flag = 0x20000000
    socket.socket(socket.AF_INET).sendto(b"x", flag, ("127.0.0.1", w.tcp))


def make_socket(family: int, kind: int, protocol: int = 0) -> Callable[[World], object]:
    return lambda _: socket.socket(family, kind, protocol)


def unix_path(w: World) -> None:
    socket.socket(socket.AF_UNIX).connect(str(w.outside / "socket"))


def unix_datagram(w: World) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as client:
        client.sendto(b"x", str(w.outside / "datagram"))


def unix_pair(w: World) -> None:
    ours, _theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    ours.sendto(b"x", str(w.outside / "datagram"))


def unix_abstract(w: World) -> None:
    socket.socket(socket.AF_UNIX).connect(f"\0democrai-{w.victim}")


Technique = tuple["Callable[[World], object]", bool]  # whether an ordinary user can do it, free

TECHNIQUES: dict[str, Technique] = {
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
    "write a file": (by_opening_to_write, True),
    "truncate a file": (lambda w: os.truncate(w.secret, 0), True),
    "empty a file while reading": (by_emptying_while_reading, True),
    "open a file for nothing": (by_opening_for_nothing, True),
    "make an unnamed file": (by_an_unnamed_file, True),
    "make an unnamed file that lends rights": (by_an_unnamed_file_that_lends, True),
    "remove a file": (lambda w: w.secret.unlink(), True),
    "rename a file": (lambda w: w.secret.rename(w.outside / "other"), True),
    "make a file": (lambda w: (w.outside / "new").write_text("x"), True),
    "make a folder": (lambda w: (w.outside / "new").mkdir(), True),
    "make a link": (lambda w: (w.outside / "new").symlink_to("/"), True),
    "make a fifo": (lambda w: os.mkfifo(w.outside / "new"), True),
    "make a device": (by_a_device, False),
    "make a whiteout": (by_a_whiteout, False),
    "chmod": (lambda w: w.secret.chmod(0o777), True),
    "chmod with fchmodat2": (with_fchmodat2, True),
    "chmod a descriptor that reads": (lambda w: os.fchmod(readable(w), 0o777), True),
    "chown": (lambda w: os.chown(w.secret, os.getuid(), os.getgid()), True),
    "chown a descriptor that reads": (
        lambda w: os.fchown(readable(w), os.getuid(), os.getgid()),
        True,
    ),
    "utime": (lambda w: os.utime(w.secret, (1, 1)), True),
    "utime of a descriptor that reads": (lambda w: os.utime(readable(w), (1, 1)), True),
    "setxattr": (lambda w: os.setxattr(w.secret, "user.x", b"x"), True),
    "setxattr of a descriptor that reads": (
        lambda w: os.setxattr(readable(w), "user.x", b"x"),
        True,
    ),
    "setxattrat": (with_setxattrat, True),
    "file_setattr": (with_file_setattr, True),
    "inode flags of a descriptor that reads": (with_inode_flags, True),
    "generation of a descriptor that reads": (with_a_generation(0x40087602), True),
    "generation by ext4's number": (with_a_generation(0x40086604), True),
    "write own memory file": (open_to_write("/proc/self/mem"), True),
    "write another's adjustments": (open_to_write("/proc/{victim}/oom_score_adj"), True),
    "write kernel settings": (open_to_write("/proc/sys/kernel/core_pattern"), False),
    "write to the kernel's log": (open_to_write("/dev/kmsg"), False),
    "open a disk": (lambda _: os.open("/dev/vda", os.O_RDONLY), False),
    "run a program": (lambda _: execute(TRUE), True),
    "run a program by descriptor": (by_execveat, True),
    "run a program through a link": (by_a_link_to_a_program, True),
    "run a program through a script": (by_a_script, True),
    "run a copy of a program": (by_copying_a_program, True),
    "run a program through the loader": (by_the_loader, True),
    "run a memory file": (by_a_memory_file, True),
    "run a memory file that says so": (by_a_memory_file_without_a_seal, True),
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
    "connect to IPv4": (tcp(socket.AF_INET, "127.0.0.1"), True),
    "connect to IPv6": (tcp(socket.AF_INET6, "::1"), True),
    "connect to a mapped address": (tcp(socket.AF_INET6, "::ffff:127.0.0.1"), True),
    "connect with MPTCP": (mptcp, True),
    "connect while sending": (fast_open, True),
    "send a datagram": (udp, True),
    "netlink route socket": (make_socket(16, socket.SOCK_RAW, 0), True),
    "netlink audit socket": (make_socket(16, socket.SOCK_RAW, 9), True),
    "raw socket": (make_socket(socket.AF_INET, socket.SOCK_RAW, 1), False),
    "packet socket": (make_socket(17, socket.SOCK_RAW), False),
    "alg socket": (make_socket(38, 5), True),
    "vsock socket": (make_socket(40, socket.SOCK_STREAM), True),
    "connect to a unix socket": (unix_path, True),
    "send to a unix socket": (unix_datagram, True),
    "send to a unix socket from one of a pair": (unix_pair, True),
    "connect to an abstract socket": (unix_abstract, True),
}
