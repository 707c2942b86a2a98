"""Landlock's rights and which ABI brought them. Pure numbers; the calls are in `kernel`.

The values are the kernel's own (linux/landlock.h). "Everything this kernel knows" would change
its meaning with each kernel, so a newer ABI than the newest one here is used as that one.
"""

from __future__ import annotations

from .record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

EXECUTE = 1 << 0
WRITE_FILE = 1 << 1
READ_FILE = 1 << 2
READ_DIR = 1 << 3
REMOVE_DIR = 1 << 4
REMOVE_FILE = 1 << 5
MAKE_CHAR = 1 << 6
MAKE_DIR = 1 << 7
MAKE_REG = 1 << 8
MAKE_SOCK = 1 << 9
MAKE_FIFO = 1 << 10
MAKE_BLOCK = 1 << 11
MAKE_SYM = 1 << 12
REFER = 1 << 13
TRUNCATE = 1 << 14
IOCTL_DEV = 1 << 15
RESOLVE_UNIX = 1 << 16

BIND_TCP = 1 << 0
CONNECT_TCP = 1 << 1
BIND_UDP = 1 << 2
CONNECT_SEND_UDP = 1 << 3

SCOPE_ABSTRACT_UNIX = 1 << 0
SCOPE_SIGNAL = 1 << 1

# Denials are logged for the command, not for the trials before it.
LOG_SAME_EXEC_OFF = 1 << 0
LOG_NEW_EXEC_ON = 1 << 1
# Enters with all threads of the process; never used here: see launcher/README.md.
ALL_THREADS = 1 << 3

# What a rule on a plain file may carry: the kernel answers EINVAL to any other right there.
FILE_RIGHTS = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV | RESOLVE_UNIX

_FS_ADDED_IN: Mapping[int, int] = {
    1: (1 << 13) - 1,  # EXECUTE to MAKE_SYM
    2: REFER,
    3: TRUNCATE,
    5: IOCTL_DEV,
    9: RESOLVE_UNIX,
}
_NET_ADDED_IN: Mapping[int, int] = {4: BIND_TCP | CONNECT_TCP, 10: BIND_UDP | CONNECT_SEND_UDP}
_FLAGS_ADDED_IN: Mapping[int, int] = {7: LOG_SAME_EXEC_OFF | LOG_NEW_EXEC_ON}
_FLAGS_LEFT_ALONE: Mapping[int, int] = {8: ALL_THREADS}
_SCOPES_ADDED_IN: Mapping[int, int] = {6: SCOPE_ABSTRACT_UNIX | SCOPE_SIGNAL}

# Device nodes are in no operation: nobody who is confined makes one.
OPERATION_RIGHTS: Mapping[str, int] = {
    "read": READ_FILE | READ_DIR,
    "create": MAKE_REG | MAKE_DIR | MAKE_SYM | MAKE_FIFO | MAKE_SOCK,
    "modify": WRITE_FILE | TRUNCATE | RESOLVE_UNIX,
    "delete": REMOVE_FILE | REMOVE_DIR,
    # To start a file the kernel opens it for reading as well, and Landlock sees both.
    "execute": EXECUTE | READ_FILE,
}
# A move or a hard link needs REFER on both sides; the kernel then still refuses one that would
# gain the file a right, so this opens nothing by itself.
MOVING_OPERATIONS = frozenset({"read", "create", "delete"})

_NAMES = (
    "execute", "write_file", "read_file", "read_dir", "remove_dir", "remove_file", "make_char",
    "make_dir", "make_reg", "make_sock", "make_fifo", "make_block", "make_sym", "refer",
    "truncate", "ioctl_dev", "resolve_unix",
)  # fmt: skip


class Abilities(Record):
    """What a ruleset may handle on a kernel of one ABI; zeros where there is no Landlock."""

    filesystem: int
    network: int
    scopes: int


def abilities(abi: int) -> Abilities:
    """Say what we vouch for on this ABI: never more than the newest one in the tables."""
    tables = (_FS_ADDED_IN, _NET_ADDED_IN, _SCOPES_ADDED_IN)
    return Abilities(*(_up_to(abi, table) for table in tables))


def entry_flags(abi: int) -> int:
    """Say how a ruleset is entered on this ABI."""
    return _up_to(abi, _FLAGS_ADDED_IN)


def known_flags(abi: int) -> int:
    """Say which flags of entry this ABI has, used or not."""
    return entry_flags(abi) | _up_to(abi, _FLAGS_LEFT_ALONE)


def right_names(rights: int) -> tuple[str, ...]:
    """Name the rights of a mask, in the kernel's order."""
    return tuple(_named(rights))


def _up_to(abi: int, table: Mapping[int, int]) -> int:
    rights = 0
    for added_in, group in table.items():
        if added_in <= abi:
            rights |= group
    return rights


def _named(rights: int) -> Iterator[str]:
    for bit, name in enumerate(_NAMES):
        if rights & 1 << bit:
            yield name
