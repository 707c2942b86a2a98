"""The two seccomp programs of a command. Pure, but for reading the first one from its file.

The first says which calls exist: `seccomp_policy.json`, built into bytes beforehand. The second
judges arguments, and depends on the policy, so it is assembled here. The kernel runs both and
takes the stricter answer.
"""

from __future__ import annotations

import os

from . import bpf

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    Block = tuple[str, list[bpf.Instruction]]

TRACE = "trace"  # the kind of all calls that a rule could allow
HELD = "held"  # the kind of all calls that a person can be asked about

ARCHITECTURES: Mapping[str, int] = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_EPERM, _EACCES, _ENOSYS = 1, 13, 38

# Only the calls that the second program looks at. aarch64 never had the others.
NUMBERS: Mapping[str, tuple[int, int | None]] = {
    "bind": (49, 200),
    "clone": (56, 220),
    "connect": (42, 203),
    "creat": (85, None),
    "execve": (59, 221),
    "execveat": (322, 281),
    "ioctl": (16, 29),
    "link": (86, None),
    "linkat": (265, 37),
    "listen": (50, 201),
    "memfd_create": (319, 279),
    "mkdir": (83, None),
    "mkdirat": (258, 34),
    "mknod": (133, None),
    "mknodat": (259, 33),
    "open": (2, None),
    "openat": (257, 56),
    "openat2": (437, 437),
    "personality": (135, 92),
    "pidfd_getfd": (438, 438),
    "prlimit64": (302, 261),
    "rename": (82, None),
    "renameat": (264, 38),
    "renameat2": (316, 276),
    "rmdir": (84, None),
    "sendmmsg": (307, 269),
    "sendmsg": (46, 211),
    "sendto": (44, 206),
    "socket": (41, 198),
    "socketpair": (53, 199),
    "symlink": (88, None),
    "symlinkat": (266, 36),
    "truncate": (76, 45),
    "unlink": (87, None),
    "unlinkat": (263, 35),
    "chmod": (90, None),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "chown": (92, None),
    "fchown": (93, 55),
    "lchown": (94, None),
    "fchownat": (260, 54),
    "utime": (132, None),
    "utimes": (235, None),
    "futimesat": (261, None),
    "utimensat": (280, 88),
    "setxattr": (188, 5),
    "lsetxattr": (189, 6),
    "fsetxattr": (190, 7),
    "removexattr": (197, 14),
    "lremovexattr": (198, 15),
    "fremovexattr": (199, 16),
}
METADATA_CALLS = tuple(NUMBERS)[tuple(NUMBERS).index("chmod") :]
# What a traced run looks at: all that a rule could allow.
TRACED_CALLS = (
    "bind", "connect", "creat", "execve", "execveat", "link", "linkat", "mkdir", "mkdirat", "mknod",
    "mknodat", "open", "openat", "rename", "renameat", "renameat2", "rmdir", "sendmmsg", "sendmsg",
    "sendto", "socket", "symlink", "symlinkat", "truncate", "unlink", "unlinkat", *METADATA_CALLS,
)  # fmt: skip
# What a person can be asked about, all that the broker can then do itself; and the exec that
# makes a process the command.
HELD_CALLS = (
    "creat", "execve", "mkdir", "mkdirat", "mknod", "mknodat", "open", "openat", "rename",
    "renameat", "renameat2", "rmdir", "symlink", "symlinkat", "truncate", "unlink", "unlinkat",
    *METADATA_CALLS,
)  # fmt: skip
_WHOLES = {TRACE: TRACED_CALLS, HELD: HELD_CALLS}
_MAKING_CALLS = ("creat", "mkdir", "mkdirat", "mknod", "mknodat", "symlink", "symlinkat")
_OLD_TIMES = ("utime", "utimes", "futimesat")  # libc has used utimensat for all of them for long

# CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET.
_NAMESPACE_FLAGS = 0x7E020000
_MFD_NOEXEC_SEAL = 0x8
_MSG_FASTOPEN = 0x20000000  # sends and connects in one call, past Landlock's connect rule
_O_CREAT, _O_TRUNC, _O_ACCMODE = 0x40, 0x200, 0x3
_SET_ID_BITS, _SET_ID_VALUES = 0o6000, (0o2000, 0o4000, 0o6000)
_AT_REMOVEDIR = 0x200
_RENAME_WHITEOUT = 4  # leaves a device behind, which Landlock does not see being made
_ALL = 0xFFFFFFFF

REFUSED_REQUESTS: Mapping[int, str] = {
    0x5412: "TIOCSTI types into the terminal, and so into the shell outside",
    0x541C: "TIOCLINUX pastes into the console",
    0x5423: "TIOCSETD loads line disciplines into the kernel",
    0x40086602: "FS_IOC_SETFLAGS changes metadata through a descriptor that only reads",
    0x401C5820: "FS_IOC_FSSETXATTR changes metadata through a descriptor that only reads",
    0x40806685: "FS_IOC_ENABLE_VERITY freezes a file through a descriptor that only reads",
    0x40087602: "FS_IOC_SETVERSION changes metadata through a descriptor that only reads",
    0x800C6613: "FS_IOC_SET_ENCRYPTION_POLICY changes a folder that is only read",
    0x50009401: "BTRFS_IOC_SNAP_CREATE makes names past every check of paths",
    0x50009417: "BTRFS_IOC_SNAP_CREATE_V2, likewise",
    0x5000940E: "BTRFS_IOC_SUBVOL_CREATE, likewise",
    0x50009418: "BTRFS_IOC_SUBVOL_CREATE_V2, likewise",
    0x5000940F: "BTRFS_IOC_SNAP_DESTROY removes them likewise",
    0x5000943F: "BTRFS_IOC_SNAP_DESTROY_V2, likewise",
}

_UNIX, _INET, _INET6, _NETLINK = 1, 2, 10, 16
_STREAM, _DATAGRAM, _TYPE_MASK = 1, 2, 0xF
_TCP, _UDP, _ROUTE = (0, 6), (0, 17), (0,)
# What each name of the plan opens. The protocol counts: MPTCP and SCTP are streams that Landlock
# does not see, ICMP is a datagram.
SOCKETS: Mapping[str, bpf.Row] = {
    "unix": ((0, _ALL, (_UNIX,)),),
    "tcp": ((0, _ALL, (_INET, _INET6)), (1, _TYPE_MASK, (_STREAM,)), (2, _ALL, _TCP)),
    "udp": ((0, _ALL, (_INET, _INET6)), (1, _TYPE_MASK, (_DATAGRAM,)), (2, _ALL, _UDP)),
    "netlink route": ((0, _ALL, (_NETLINK,)), (2, _ALL, _ROUTE)),
}


def call_program(machine: str) -> bytes:
    """Return the checked-in program that says which calls exist."""
    path = os.path.join(os.path.dirname(__file__), f"seccomp_{machine}.bpf")
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, os.fstat(descriptor).st_size)
    finally:
        os.close(descriptor)


def argument_program(
    machine: str,
    sockets: Collection[str],
    *,
    truncate_is_seen: bool,
    brokered: Collection[str] = (),
    left_out: Collection[str] = (),
) -> bytes:
    """Assemble the program that judges arguments, for these kinds of sockets.

    Calls that are left out are judged by a broker that asks the whole program.
    """
    blocks = [*_fixed(), *_sockets(sockets), *_opening(truncate_is_seen=truncate_is_seen)]
    blocks.extend(_metadata(() if "metadata" not in brokered else METADATA_CALLS))
    return _assemble(machine, [block for block in blocks if block[0] not in left_out])


def broker_program(machine: str, brokered: Collection[str]) -> bytes:
    """Assemble the program that makes these kinds of calls wait for the broker."""
    wholes = [names for kind, names in _WHOLES.items() if kind in brokered]
    return _assemble(machine, list(_all_of(wholes[0]) if wholes else _brokered(brokered)))


def brokered_numbers(machine: str) -> dict[int, str]:
    """Name the calls by their numbers, for the broker."""
    place = tuple(ARCHITECTURES).index(machine)
    numbered = ((numbers[place], name) for name, numbers in NUMBERS.items())
    return {number: name for number, name in numbered if number is not None}


def _assemble(machine: str, blocks: list[Block]) -> bytes:
    place = tuple(ARCHITECTURES).index(machine)
    numbered = ((NUMBERS[name][place], body) for name, body in blocks)
    return bpf.program(
        ARCHITECTURES[machine],
        (bpf.block(number, body) for number, body in numbered if number is not None),
    )


def _fixed() -> Iterator[Block]:
    refused = bpf.errno_action(_EPERM)
    yield "clone", bpf.if_any_bit(0, _NAMESPACE_FLAGS, refused)
    yield "ioctl", bpf.if_masked(1, _ALL, tuple(REFUSED_REQUESTS), refused)
    yield "memfd_create", bpf.unless_masked(1, _MFD_NOEXEC_SEAL, (_MFD_NOEXEC_SEAL,), refused)
    # 0 is plain Linux and all ones asks without changing: no other personality is needed.
    yield "personality", bpf.unless_masked(0, _ALL, (0, _ALL), refused)
    # Here and not in the first program, which the broker lives under when the launcher is warm.
    yield "openat2", bpf.answer(bpf.errno_action(_ENOSYS))
    yield "pidfd_getfd", bpf.answer(refused)
    yield "sendto", bpf.if_any_bit(3, _MSG_FASTOPEN, refused)
    yield "sendmsg", bpf.if_any_bit(2, _MSG_FASTOPEN, refused)
    yield "sendmmsg", bpf.if_any_bit(3, _MSG_FASTOPEN, refused)
    # A process may limit itself; the limits of the user's other processes are their own.
    yield "prlimit64", bpf.unless_masked(0, _ALL, (0,), refused)
    yield "renameat2", bpf.if_any_bit(4, _RENAME_WHITEOUT, refused)
    for name, mode in (("creat", 1), ("mknod", 1), ("mknodat", 2)):
        yield name, bpf.if_any_bit(mode, _SET_ID_BITS, refused)


def _sockets(sockets: Collection[str]) -> Iterator[Block]:
    refused = bpf.errno_action(_EACCES)
    yield "socket", bpf.unless_rows([SOCKETS[name] for name in sockets], refused)
    yield "socketpair", bpf.unless_masked(0, _ALL, (_UNIX,), refused)
    if "unix" not in sockets:  # then a listener could only be one of the network
        yield "listen", bpf.answer(refused)


def _metadata(brokered: Collection[str]) -> Iterator[Block]:
    for name in METADATA_CALLS:
        if name not in brokered or name in _OLD_TIMES:
            yield name, bpf.answer(bpf.errno_action(_EPERM))


def _opening(*, truncate_is_seen: bool) -> Iterator[Block]:
    """Judge what an open does beside opening.

    Nobody who is confined makes a file that lends its owner's rights. And before ABI 3, where
    Landlock is blind to truncation, reading must not be enough to empty a file.
    """
    refused = bpf.errno_action(_EACCES)
    empties = (_O_TRUNC, _O_TRUNC | _O_ACCMODE)
    for name, flags in (("open", 1), ("openat", 2)):
        set_id = ((flags, _O_CREAT, (_O_CREAT,)), (flags + 1, _SET_ID_BITS, _SET_ID_VALUES))
        truncation = ((flags, _O_TRUNC | _O_ACCMODE, empties),)
        yield name, bpf.if_rows([set_id] if truncate_is_seen else [set_id, truncation], refused)
    if not truncate_is_seen:
        yield "truncate", bpf.answer(refused)


def _all_of(names: Collection[str]) -> Iterator[Block]:
    for name in names:
        yield name, bpf.answer(bpf.NOTIFY)


def _brokered(kinds: Collection[str]) -> Iterator[Block]:
    if "create" in kinds:
        yield "open", bpf.if_any_bit(1, _O_CREAT, bpf.NOTIFY)
        yield "openat", bpf.if_any_bit(2, _O_CREAT, bpf.NOTIFY)
        for name in _MAKING_CALLS:
            yield name, bpf.answer(bpf.NOTIFY)
    if "delete" in kinds:
        for name in ("unlink", "unlinkat", "rmdir"):
            yield name, bpf.answer(bpf.NOTIFY)
    if "delete folder" in kinds:
        yield "unlinkat", bpf.if_any_bit(2, _AT_REMOVEDIR, bpf.NOTIFY)
        yield "rmdir", bpf.answer(bpf.NOTIFY)
    if "metadata" in kinds:
        for name in METADATA_CALLS:
            yield name, bpf.answer(bpf.NOTIFY)
