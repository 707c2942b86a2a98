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


class _Long(_SimpleCData):  # type: ignore[type-arg]
    _type_ = "l"


class _Byte(_SimpleCData):  # type: ignore[type-arg]
    _type_ = "c"


class _Function(CFuncPtr):
    _flags_ = FUNCFLAG_CDECL | FUNCFLAG_USE_ERRNO
    _restype_ = _Long


_call = _Function(dlsym(dlopen(None, os.RTLD_NOW), "syscall"))  # type: ignore[arg-type] # this process
_call.argtypes = (_Long,) * 7

_MACHINE = os.uname().machine
# Calls that are younger than 2019 have one number on every architecture.
_PRCTL = {"x86_64": 157, "aarch64": 167}
_SECCOMP = {"x86_64": 317, "aarch64": 277}
_CLONE = {"x86_64": 56, "aarch64": 220}
_UNSHARE = {"x86_64": 272, "aarch64": 97}
_SOCKET = {"x86_64": 41, "aarch64": 198}
_SOCKETPAIR = {"x86_64": 53, "aarch64": 199}
_PRLIMIT64 = {"x86_64": 302, "aarch64": 261}
_EXECVEAT = {"x86_64": 322, "aarch64": 281}
_CLOSE_RANGE = 436
_OPENAT2 = 437
_PIDFD_GETFD = 438
_LANDLOCK_CREATE_RULESET = 444
_LANDLOCK_ADD_RULE = 445
_LANDLOCK_RESTRICT_SELF = 446

_CLONE_PARENT = 0x8000
_SIGCHLD = 17

_CREATE_RULESET_VERSION = 1
_CREATE_RULESET_ERRATA = 2
_RULE_PATH_BENEATH = 1
_RULE_NET_PORT = 2

_PR_SET_PDEATHSIG = 1
_PR_CAPBSET_READ = 23
_PR_CAPBSET_DROP = 24
_PR_SET_NO_NEW_PRIVS = 38
_PR_CAP_AMBIENT = 47
_PR_CAP_AMBIENT_CLEAR_ALL = 4

_SECCOMP_SET_MODE_FILTER = 1
_SECCOMP_GET_ACTION_AVAIL = 2
_RET_KILL_PROCESS = 0x80000000
_RET_USER_NOTIF = 0x7FC00000
_NEW_LISTENER = 1 << 3
_WAIT_KILLABLE = 1 << 5  # once received, only death interrupts a waiting call
_INSTRUCTION_SIZE = 8
_RLIMIT_CORE = 4
_RESOLVE_NO_MAGICLINKS = 2
_AT_EMPTY_PATH = 0x1000
_AT_EXECVE_CHECK = 0x10000
_LAST_DESCRIPTOR = 0xFFFFFFFF


def landlock_abi() -> int:
    """Return the version of Landlock's interface, 0 where it is missing or switched off."""
    try:
        return _syscall("landlock", _LANDLOCK_CREATE_RULESET, 0, 0, _CREATE_RULESET_VERSION)
    except OSError as error:
        if error.errno in {errno.ENOSYS, errno.EOPNOTSUPP}:
            return 0
        raise


def landlock_errata() -> int:
    """Return the mask of Landlock's fixed bugs, 0 where the kernel cannot say."""
    try:
        return _syscall("landlock", _LANDLOCK_CREATE_RULESET, 0, 0, _CREATE_RULESET_ERRATA)
    except OSError as error:
        if error.errno in {errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL}:
            return 0
        raise


def create_ruleset(filesystem: int, network: int, scopes: int) -> int:
    """Create a ruleset that handles these rights and return its descriptor."""
    # An older kernel takes a longer structure as long as what it does not know is zero.
    attributes = _words(filesystem, network, scopes)
    address = addressof(attributes)
    return _syscall("landlock_create_ruleset", _LANDLOCK_CREATE_RULESET, address, 24, 0)


def allow_path(ruleset: int, descriptor: int, rights: int) -> None:
    """Allow the rights at the file or folder behind the descriptor, and beneath it."""
    _add_rule(ruleset, _RULE_PATH_BENEATH, _words(rights, descriptor))


def allow_port(ruleset: int, port: int, rights: int) -> None:
    """Allow the rights for the port."""
    _add_rule(ruleset, _RULE_NET_PORT, _words(rights, port))


def restrict_self(ruleset: int, flags: int) -> None:
    """Enter the ruleset: this thread, and what it starts, for good."""
    _syscall("landlock_restrict_self", _LANDLOCK_RESTRICT_SELF, ruleset, flags)


def set_no_new_privs() -> None:
    """Make set-user-id files and file capabilities void from here on."""
    _prctl("no_new_privs", _PR_SET_NO_NEW_PRIVS, 1)


def set_death_signal(number: int) -> None:
    """Have this process receive the signal when its parent dies."""
    _prctl("pdeathsig", _PR_SET_PDEATHSIG, number)


def clear_ambient_capabilities() -> None:
    """Forget the capabilities that would survive exec in an ordinary user."""
    _prctl("cap_ambient", _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL)


def in_bounding_set(capability: int) -> bool:
    """Tell whether exec could still give the capability; False beyond the last that exists."""
    try:
        return bool(_prctl("capbset_read", _PR_CAPBSET_READ, capability))
    except OSError:
        return False


def drop_from_bounding_set(capability: int) -> None:
    """Make exec unable to give the capability."""
    _prctl("capbset_drop", _PR_CAPBSET_DROP, capability)


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
    how, text = _words(flags, 0, _RESOLVE_NO_MAGICLINKS), _buffer(path + b"\0")
    return _syscall("openat2", _OPENAT2, folder, addressof(text), addressof(how), 24)


def check_execution(descriptor: int) -> None:
    """Ask whether the file could be started, without starting it; EINVAL before Linux 6.14."""
    empty = _buffer(b"\0")
    flags = _AT_EMPTY_PATH | _AT_EXECVE_CHECK
    _syscall("execveat", _EXECVEAT[_MACHINE], descriptor, addressof(empty), 0, 0, flags)


def fork_sibling() -> int:
    """Fork a process whose parent is this one's parent; return its number, and 0 in it.

    Only for a process without threads: what libc and Python do around a fork is left out.
    """
    return _syscall("clone", _CLONE[_MACHINE], _CLONE_PARENT | _SIGCHLD)


def unshare(flags: int) -> None:
    """Leave the namespaces of these flags; with none, do nothing where that is allowed."""
    _syscall("unshare", _UNSHARE[_MACHINE], flags)


def open_socket(family: int, kind: int) -> int:
    """Open a socket. `socket.socket` would do, and cost more than the rest of the receipt."""
    return _syscall("socket", _SOCKET[_MACHINE], family, kind, 0)


def open_socket_pair(family: int, kind: int) -> tuple[int, int]:
    """Open two sockets that are connected with each other."""
    pair = _buffer(bytes(8))
    _syscall("socketpair", _SOCKETPAIR[_MACHINE], family, kind, 0, addressof(pair))
    ends = bytes(pair)
    return int.from_bytes(ends[:4], "little"), int.from_bytes(ends[4:], "little")


def forbid_core_dumps() -> None:
    """Have a crash leave no copy of this process's memory, whatever the command does later."""
    nothing = _words(0, 0)
    _syscall("prlimit64", _PRLIMIT64[_MACHINE], 0, _RLIMIT_CORE, addressof(nothing), 0)


def copy_descriptor(process: int, number: int) -> int:
    """Return a copy of a descriptor of another process, which a descriptor of ours stands for."""
    return _syscall("pidfd_getfd", _PIDFD_GETFD, process, number, 0)


def close_range(first: int, last: int = _LAST_DESCRIPTOR) -> None:
    """Close every descriptor from the first to the last."""
    _syscall("close_range", _CLOSE_RANGE, first, last, 0)


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


def _add_rule(ruleset: int, kind: int, attributes: Array[_Byte]) -> None:
    address = addressof(attributes)
    _syscall("landlock_add_rule", _LANDLOCK_ADD_RULE, ruleset, kind, address, 0)


def _words(*values: int) -> Array[_Byte]:
    """Lay numbers out as the kernel's structures have them here: in steps of eight bytes."""
    return _buffer(b"".join([value.to_bytes(8, "little") for value in values]))


def _buffer(content: bytes) -> Array[_Byte]:
    return (_Byte * len(content)).from_buffer_copy(content)


def _prctl(name: str, option: int, value: int) -> int:
    return _syscall(name, _PRCTL[_MACHINE], option, value)


def _seccomp(operation: int, flags: int, address: int) -> int:
    return _syscall("seccomp", _SECCOMP[_MACHINE], operation, flags, address)


def _syscall(name: str, number: int, *arguments: int) -> int:
    padding = (0,) * (6 - len(arguments))
    result = int(_call(number, *arguments, *padding))
    if result == -1:  # only a failed call says anything about errno
        code = get_errno()
        raise OSError(code, os.strerror(code), name)
    return result
