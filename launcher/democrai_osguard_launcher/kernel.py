"""The one door to the kernel: the calls that Python has no name for.

Each function is one call. Failure is read from the return value, and only then from errno; it
raises OSError. Nothing here decides anything.

It takes from `_ctypes` the little that it needs: `ctypes` itself would cost a tenth of a launch.
"""

from __future__ import annotations

import errno
import os
from _ctypes import (
    FUNCFLAG_CDECL,
    FUNCFLAG_USE_ERRNO,
    CFuncPtr,
    _SimpleCData,
    addressof,
    dlopen,
    dlsym,
    get_errno,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _ctypes import Array
    from collections.abc import Iterable, Mapping

    Code = CFuncPtr
    Memory = Array["_Byte"]


class _Long(_SimpleCData):  # type: ignore[type-arg]
    _type_ = "l"


class _Byte(_SimpleCData):  # type: ignore[type-arg]
    _type_ = "c"


class _Word(_SimpleCData):  # type: ignore[type-arg]
    _type_ = "Q"


class _Function(CFuncPtr):
    _flags_ = FUNCFLAG_CDECL | FUNCFLAG_USE_ERRNO
    _restype_ = _Long


_address = dlsym(dlopen(None, os.RTLD_NOW), "syscall")  # type: ignore[arg-type] # this process
_call = _Function(_address)
_call.argtypes = (_Long,) * 7
# A policy may have a thousand rules, and this call half the cost where no type is asked for: its
# numbers fit into an `int`, which is what they then are, and a buffer is passed as its address.
_call_with_buffer = _Function(_address)
_rule = (_Word * 2)()
_how = (_Word * 3)()  # flags, mode, and how links are followed

_MACHINE = os.uname().machine
# x86_64 and aarch64. Calls that are younger than 2019 have one number on every architecture.
NUMBERS: Mapping[str, tuple[int, int]] = {
    "capget": (125, 90),
    "capset": (126, 91),
    "chdir": (80, 49),
    "clone": (56, 220),
    "close": (3, 57),
    "close_range": (436, 436),
    "connect": (42, 203),
    "dup3": (292, 24),
    "execve": (59, 221),
    "execveat": (322, 281),
    "faccessat2": (439, 439),
    "fchmod": (91, 52),
    "fcntl": (72, 25),
    "fstatfs": (138, 44),
    "getpid": (39, 172),
    "inotify_add_watch": (254, 27),
    "kill": (62, 129),
    "landlock_add_rule": (445, 445),
    "landlock_create_ruleset": (444, 444),
    "landlock_restrict_self": (446, 446),
    "linkat": (265, 37),
    "mmap": (9, 222),
    "newfstatat": (262, 79),
    "openat": (257, 56),
    "openat2": (437, 437),
    "pidfd_getfd": (438, 438),
    "prctl": (157, 167),
    "prlimit64": (302, 261),
    "read": (0, 63),
    "renameat": (264, 38),
    "rt_sigaction": (13, 134),
    "rt_sigprocmask": (14, 135),
    "seccomp": (317, 277),
    "sendmsg": (46, 211),
    "setpgid": (109, 154),
    "setsid": (112, 157),
    "socket": (41, 198),
    "socketpair": (53, 199),
    "statx": (332, 291),
    "umask": (95, 166),
    "unlinkat": (263, 35),
    "unshare": (272, 97),
    "utimensat": (280, 88),
    "write": (1, 64),
}
_STATUS_SIZE = {"x86_64": 144, "aarch64": 128}
_STATX_SIZE, _STATFS_SIZE = 256, 120
# These two are asked for with every rule.
_OPENAT2 = 437
_ADD_RULE = 445

_CLONE_PARENT = 0x8000
_SIGCHLD = 17

_CREATE_RULESET_VERSION = 1
_CREATE_RULESET_ERRATA = 2
_RULE_PATH_BENEATH = 1
_RULE_NET_PORT = 2

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_PR_CAPBSET_READ = 23
_PR_CAPBSET_DROP = 24
PR_SET_NO_NEW_PRIVS = 38
_PR_CAP_AMBIENT = 47
_PR_CAP_AMBIENT_CLEAR_ALL = 4

_SECCOMP_SET_MODE_FILTER = 1
_SECCOMP_GET_ACTION_AVAIL = 2
_RET_KILL_PROCESS = 0x80000000
_RET_USER_NOTIF = 0x7FC00000
_NEW_LISTENER = 1 << 3
_WAIT_KILLABLE = 1 << 5  # once received, only death interrupts a waiting call
_INSTRUCTION_SIZE = 8
_RLIMIT_CORE, _RLIMIT_QUEUES = 4, 12
_LIMIT_SIZE = 16  # for now, and for how far it can be raised again
_RESOLVE_NO_MAGICLINKS, _RESOLVE_NO_SYMLINKS = 2, 4
AT_EMPTY_PATH = 0x1000
FROM_THE_ROOT = -100  # AT_FDCWD, which an absolute path does without
AT_EXECVE_CHECK = 0x10000
LAST_DESCRIPTOR = 0xFFFFFFFF
_PROT_READ, _PROT_EXEC, _MAP_PRIVATE = 1, 4, 2
_CAPABILITY_VERSION = 0x20080522
_CAPABILITIES_SIZE = 24
_PAGE = 4096
_SMALLEST_BUFFER = 128  # a path, most often


def number_of(name: str) -> int:
    """Return the number that a call has on this machine; raise KeyError where nobody knows."""
    ours, theirs = NUMBERS[name]
    if _MACHINE == "x86_64" or ours == theirs:
        return ours
    if _MACHINE == "aarch64":
        return theirs
    raise KeyError(name)


def landlock_abi() -> int:
    """Return the version of Landlock's interface, 0 where it is missing or switched off."""
    try:
        return _syscall(
            "landlock", number_of("landlock_create_ruleset"), 0, 0, _CREATE_RULESET_VERSION
        )
    except OSError as error:
        if error.errno in {errno.ENOSYS, errno.EOPNOTSUPP}:
            return 0
        raise


def landlock_errata() -> int:
    """Return the mask of Landlock's fixed bugs, 0 where the kernel cannot say."""
    try:
        return _syscall(
            "landlock", number_of("landlock_create_ruleset"), 0, 0, _CREATE_RULESET_ERRATA
        )
    except OSError as error:
        if error.errno in {errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL}:
            return 0
        raise


def create_ruleset(filesystem: int, network: int, scopes: int) -> int:
    """Create a ruleset that handles these rights and return its descriptor."""
    # An older kernel takes a longer structure as long as what it does not know is zero.
    attributes = _words(filesystem, network, scopes)
    address = addressof(attributes)
    return _syscall("landlock_create_ruleset", number_of("landlock_create_ruleset"), address, 24, 0)


def allow_path(ruleset: int, descriptor: int, rights: int) -> None:
    """Allow the rights at the file or folder behind the descriptor, and beneath it."""
    _rule[0], _rule[1] = rights, descriptor
    if _call_with_buffer(_ADD_RULE, ruleset, _RULE_PATH_BENEATH, _rule, 0) == -1:
        raise _failure("landlock_add_rule")


def allow_port(ruleset: int, port: int, rights: int) -> None:
    """Allow the rights for the port."""
    rule = _words(rights, port)
    address = addressof(rule)
    _syscall("landlock_add_rule", _ADD_RULE, ruleset, _RULE_NET_PORT, address)


def restrict_self(ruleset: int, flags: int) -> None:
    """Enter the ruleset: this thread, and what it starts, for good."""
    _syscall("landlock_restrict_self", number_of("landlock_restrict_self"), ruleset, flags)


def set_no_new_privs() -> None:
    """Make set-user-id files and file capabilities void from here on."""
    _prctl("no_new_privs", PR_SET_NO_NEW_PRIVS, 1)


def set_death_signal(number: int) -> None:
    """Have this process receive the signal when its parent dies."""
    _prctl("pdeathsig", _PR_SET_PDEATHSIG, number)


def adopt_orphans() -> None:
    """Have this process become the parent of what its descendants leave behind."""
    _prctl("child_subreaper", _PR_SET_CHILD_SUBREAPER, 1)


def clear_ambient_capabilities() -> None:
    """Forget the capabilities that would survive exec in an ordinary user."""
    _prctl("cap_ambient", _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL)


def drop_from_bounding_set(capability: int) -> bool:
    """Make exec unable to give the capability; False beyond the last that exists."""
    try:
        _prctl("capbset_drop", _PR_CAPBSET_DROP, capability)
    except OSError:
        try:
            held = _prctl("capbset_read", _PR_CAPBSET_READ, capability)
        except OSError:
            return False
        if held:
            raise  # else it was gone before, and who may not drop it need not
    return True


def has_seccomp() -> bool:
    """Tell whether filters can end a whole process."""
    return _has_action(_RET_KILL_PROCESS)


def has_notifications() -> bool:
    """Tell whether filters can make a call wait for another process."""
    return _has_action(_RET_USER_NOTIF)


def load_filter(program: bytes) -> None:
    """Attach a seccomp program to this process and to what it starts, for good."""
    _load(program, 0)


def load_listening_filter(program: bytes) -> int:
    """Attach a program whose notifications arrive at the returned descriptor."""
    try:
        return _load(program, _NEW_LISTENER | _WAIT_KILLABLE)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        return _load(program, _NEW_LISTENER)  # before Linux 5.19 signals interrupt the waiting


def open_without_magic_links(folder: int, path: bytes, flags: int) -> int:
    """Open a path as openat does, but for the links of /proc that jump to open files: ELOOP."""
    _how[0], _how[1], _how[2] = flags, 0, _RESOLVE_NO_MAGICLINKS
    opened: int = _call_with_buffer(_OPENAT2, folder, path, _how, 24)
    if opened == -1:
        raise _failure("openat2")
    return opened


def open_without_links(path: bytes, flags: int, mode: int) -> int:
    """Open an absolute path on which there is no link at all; ELOOP where there is one."""
    _how[0], _how[1], _how[2] = flags, mode, _RESOLVE_NO_SYMLINKS
    opened: int = _call_with_buffer(_OPENAT2, FROM_THE_ROOT, path, _how, 24)
    if opened == -1:
        raise _failure("openat2")
    return opened


def set_times(descriptor: int, times: bytes | None) -> None:
    """Set both times of the open object, given as the kernel lays them out; None is now."""
    if _call_with_buffer(number_of("utimensat"), descriptor, b"", times, AT_EMPTY_PATH) == -1:
        raise _failure("utimensat")


def status_of(descriptor: int) -> bytes:
    """Return what stat says about the open object, as the kernel lays it out."""
    size = _STATUS_SIZE[_MACHINE]
    answer, empty = _buffer(bytes(size)), _buffer(b"\0")
    place = addressof(answer)
    _syscall("stat", number_of("newfstatat"), descriptor, addressof(empty), place, AT_EMPTY_PATH)
    return bytes(answer)[:size]


def long_status_of(descriptor: int, flags: int, mask: int) -> bytes:
    """Return what statx says about the open object, as the kernel lays it out."""
    answer, empty = _buffer(bytes(_STATX_SIZE)), _buffer(b"\0")
    names = addressof(empty), flags | AT_EMPTY_PATH
    _syscall("statx", number_of("statx"), descriptor, *names, mask, addressof(answer))
    return bytes(answer)[:_STATX_SIZE]


def file_system_of(descriptor: int) -> bytes:
    """Return what statfs says about the open object, as the kernel lays it out."""
    answer = _buffer(bytes(_STATFS_SIZE))
    _syscall("fstatfs", number_of("fstatfs"), descriptor, addressof(answer))
    return bytes(answer)[:_STATFS_SIZE]


def check_access(descriptor: int, mode: int, flags: int) -> None:
    """Ask what access asks, about the open object."""
    empty = _buffer(b"\0")
    _syscall(
        "access", number_of("faccessat2"), descriptor, addressof(empty), mode, flags | AT_EMPTY_PATH
    )


def add_watch(watches: int, path: bytes, mask: int) -> int:
    """Watch the object for events, and return the number of the watch."""
    text = _buffer(path + b"\0")
    return _syscall("inotify", number_of("inotify_add_watch"), watches, addressof(text), mask)


def fork_sibling() -> int:
    """Fork a process whose parent is this one's parent; return its number, and 0 in it.

    Only for a process without threads: what libc and Python do around a fork is left out.
    """
    return _syscall("clone", number_of("clone"), _CLONE_PARENT | _SIGCHLD)


def forbid_core_dumps() -> None:
    """Have a crash leave no copy of this process's memory, whatever the command does later."""
    nothing = _words(0, 0)
    _syscall("prlimit64", number_of("prlimit64"), 0, _RLIMIT_CORE, addressof(nothing), 0)


def limit_of_queues(process: int) -> bytes:
    """Return how much room for message queues a process has, as the kernel lays it out."""
    answer = _buffer(bytes(_LIMIT_SIZE))
    _syscall("prlimit64", number_of("prlimit64"), process, _RLIMIT_QUEUES, 0, addressof(answer))
    return bytes(answer)[:_LIMIT_SIZE]


def limit_queues(process: int, limit: bytes) -> None:
    """Limit a process's room for message queues, and that of all that it will start."""
    wanted = _buffer(limit)
    _syscall("prlimit64", number_of("prlimit64"), process, _RLIMIT_QUEUES, addressof(wanted), 0)


def call(name: str, *arguments: int | bytes | bytearray) -> int:
    """Make a call by its name. Bytes are passed by address, and copied; a bytearray is not."""
    held = [each if isinstance(each, int) else _room(each) for each in arguments]
    passed = [each if isinstance(each, int) else addressof(each) for each in held]
    return _syscall(name, number_of(name), *passed)


def map_code(path: str) -> Code:
    """Map a file of machine code, to be read and run, and return it as a function of a buffer."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size = os.fstat(descriptor).st_size
        address = call("mmap", 0, size, _PROT_READ | _PROT_EXEC, _MAP_PRIVATE, descriptor, 0)
    finally:
        os.close(descriptor)
    return _Function(address)


def memory(size: int) -> tuple[Memory, int]:
    """Return memory that stays where it is, of at least this size, and its address."""
    room = (_Byte * (-(-size // _PAGE) * _PAGE))()  # few sizes, as in `_buffer`
    return room, addressof(room)


def copy_descriptor(process: int, number: int) -> int:
    """Return a copy of a descriptor of another process, which a descriptor of ours stands for."""
    return _syscall("pidfd_getfd", number_of("pidfd_getfd"), process, number, 0)


def connect_socket(descriptor: int, address: bytes) -> None:
    """Connect the socket to an address, given as the kernel's own bytes."""
    text = _buffer(address)
    _syscall("connect", number_of("connect"), descriptor, addressof(text), len(address))


def send_message(
    descriptor: int, content: bytes, flags: int, address: bytes = b"", control: bytes = b""
) -> int:
    """Send one message on the socket; return how much of it was taken."""
    name, body, extra = _buffer(address), _buffer(content), _buffer(control)
    piece = _words(addressof(body), len(content))
    header = _words(
        addressof(name) if address else 0, len(address), addressof(piece), 1,
        addressof(extra) if control else 0, len(control), 0,
    )  # fmt: skip
    return _syscall("sendmsg", number_of("sendmsg"), descriptor, addressof(header), flags)


def keep_capabilities(numbers: Iterable[int]) -> None:
    """Give up every capability but these, in this process, for good."""
    header = _buffer(_CAPABILITY_VERSION.to_bytes(4, "little") + bytes(4))
    answer = _buffer(bytes(_CAPABILITIES_SIZE))
    _syscall("capget", number_of("capget"), addressof(header), addressof(answer))
    held = bytes(answer)[:_CAPABILITIES_SIZE]
    mask = sum(1 << number for number in numbers)
    halves = [half.to_bytes(4, "little") * 3 for half in (mask & 0xFFFFFFFF, mask >> 32)]
    left = _buffer(bytes(a & b for a, b in zip(held, b"".join(halves), strict=True)))
    _syscall("capset", number_of("capset"), addressof(header), addressof(left))


def close_range(first: int, last: int = LAST_DESCRIPTOR) -> None:
    """Close every descriptor from the first to the last."""
    _syscall("close_range", number_of("close_range"), first, last, 0)


def _has_action(action: int) -> bool:
    word = _words(action)
    try:
        _seccomp(_SECCOMP_GET_ACTION_AVAIL, 0, addressof(word))
    except (OSError, KeyError):
        return False
    return True


def _load(program: bytes, flags: int) -> int:
    code = _buffer(program)
    header = _words(len(program) // _INSTRUCTION_SIZE, addressof(code))
    return _seccomp(_SECCOMP_SET_MODE_FILTER, flags, addressof(header))


def _words(*values: int) -> Array[_Byte]:
    """Lay numbers out as the kernel's structures have them here: in steps of eight bytes."""
    return _buffer(b"".join([value.to_bytes(8, "little") for value in values]))


def _buffer(content: bytes) -> Array[_Byte]:
    """Copy bytes to a place that stays, with zeros behind them.

    Its size is a power of two, because each size is a class of its own, which takes 20 µs to make.
    """
    size = max(_SMALLEST_BUFFER, 1 << len(content).bit_length())
    return (_Byte * size).from_buffer_copy(content.ljust(size, b"\0"))


def _room(content: bytes | bytearray) -> Array[_Byte]:
    if isinstance(content, bytearray):
        return (_Byte * len(content)).from_buffer(content)
    return _buffer(content)


def _prctl(name: str, option: int, value: int) -> int:
    return _syscall(name, number_of("prctl"), option, value)


def _seccomp(operation: int, flags: int, address: int) -> int:
    return _syscall("seccomp", number_of("seccomp"), operation, flags, address)


def _syscall(  # noqa: PLR0913, PLR0917 - as many as the kernel has registers for
    name: str, number: int, a: int = 0, b: int = 0, c: int = 0, d: int = 0, e: int = 0, f: int = 0
) -> int:
    result: int = _call(number, a, b, c, d, e, f)
    if result == -1:  # only a failed call says anything about errno
        raise _failure(name)
    return result


def _failure(name: str) -> OSError:
    code = get_errno()
    return OSError(code, os.strerror(code), name)
