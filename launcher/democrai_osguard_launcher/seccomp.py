"""The seccomp program that judges arguments, and the one that makes calls wait. Pure.

Which calls exist is said by another, `seccomp_policy.json`, built into bytes beforehand
(`stored_programs`). These depend on the plan, so they are assembled here; the plainest are stored
as well. The kernel runs all of them and takes the strictest answer.
"""

from __future__ import annotations

from . import bpf

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    Block = tuple[str, list[bpf.Instruction]]

TRACE = "trace"  # the kind of all calls that a rule could allow
HELD = "held"  # the kind of all calls that a person can be asked about

ARCHITECTURES: Mapping[str, int] = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_EPERM, _EACCES, _ENOSYS = 1, 13, 38

# Only the calls that the second program looks at. aarch64 never had the others; of the two that
# a loader makes before anything else runs, one is enough.
NUMBERS: Mapping[str, tuple[int | None, int | None]] = {
    "arch_prctl": (158, None),
    "set_tid_address": (None, 96),
    "bind": (49, 200),
    "clone": (56, 220),
    "connect": (42, 203),
    "creat": (85, None),
    "execve": (59, 221),
    "execveat": (322, 281),
    "fcntl": (72, 25),
    "ioctl": (16, 29),
    "stat": (4, None),
    "lstat": (6, None),
    "newfstatat": (262, 79),
    "statx": (332, 291),
    "access": (21, None),
    "faccessat": (269, 48),
    "faccessat2": (439, 439),
    "readlink": (89, None),
    "readlinkat": (267, 78),
    "statfs": (137, 43),
    "fstat": (5, 80),
    "fstatfs": (138, 44),
    "getxattr": (191, 8),
    "lgetxattr": (192, 9),
    "listxattr": (194, 11),
    "llistxattr": (195, 12),
    "inotify_add_watch": (254, 27),
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
    "seccomp": (317, 277),
    "sendmmsg": (307, 269),
    "sendmsg": (46, 211),
    "sendto": (44, 206),
    "setsockopt": (54, 208),
    "socket": (41, 198),
    "socketpair": (53, 199),
    "symlink": (88, None),
    "symlinkat": (266, 36),
    "truncate": (76, 45),
    "unlink": (87, None),
    "unlinkat": (263, 35),
    "umask": (95, 166),
    "setuid": (105, 146),
    "setgid": (106, 144),
    "setreuid": (113, 145),
    "setregid": (114, 143),
    "setresuid": (117, 147),
    "setresgid": (119, 149),
    "setfsuid": (122, 151),
    "setfsgid": (123, 152),
    "setgroups": (116, 159),
    "capset": (126, 91),
    "landlock_restrict_self": (446, 446),
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
LOOKING_CALLS = (
    "stat", "lstat", "newfstatat", "statx", "access", "faccessat", "faccessat2", "readlink",
    "readlinkat", "statfs", "getxattr", "lgetxattr", "listxattr", "llistxattr", "inotify_add_watch",
    "fstat", "fstatfs",
)  # fmt: skip
STARTING_CALLS = ("execve", "execveat", "arch_prctl", "set_tid_address")
METADATA_CALLS = tuple(NUMBERS)[tuple(NUMBERS).index("chmod") :]
# What changes the caller so that the broker must know; the kernel then carries it out.
IDENTITY_CALLS = (
    "setuid", "setgid", "setreuid", "setregid", "setresuid", "setresgid", "setfsuid", "setfsgid",
    "setgroups", "capset",
)  # fmt: skip
STANDING_CALLS = ("umask", *IDENTITY_CALLS, "landlock_restrict_self")
# What a traced run looks at: all that a rule could allow.
TRACED_CALLS = (
    "bind", "connect", "creat", "link", "linkat", "mkdir", "mkdirat", "mknod", "mknodat", "open",
    "openat", "rename", "renameat", "renameat2", "rmdir", "sendmmsg", "sendmsg", "sendto", "socket",
    "symlink", "symlinkat", "truncate", "unlink", "unlinkat", *STARTING_CALLS, *METADATA_CALLS,
    *STANDING_CALLS,
)  # fmt: skip
# What the broker may do itself, and Landlock judges as well.
NAME_CALLS = (
    "creat", "mkdir", "mkdirat", "mknod", "mknodat", "open", "openat", "rename", "renameat",
    "renameat2", "rmdir", "symlink", "symlinkat", "truncate", "unlink", "unlinkat",
)  # fmt: skip
# What a person can be asked about, all that the broker can then do itself; and what starts a
# program, which the broker looks at.
HELD_CALLS = (*NAME_CALLS, *STARTING_CALLS, *METADATA_CALLS, *STANDING_CALLS)
_WHOLES = {TRACE: TRACED_CALLS, HELD: HELD_CALLS}
_MAKING_CALLS = ("creat", "mkdir", "mkdirat", "mknod", "mknodat", "symlink", "symlinkat")

# CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET.
_NAMESPACE_FLAGS = 0x7E020000
_MFD_NOEXEC_SEAL = 0x8
_MSG_FASTOPEN = 0x20000000  # sends and connects in one call, past Landlock's connect rule
_O_CREAT, _O_TRUNC, _O_ACCMODE, _O_PATH = 0x40, 0x200, 0x3, 0x200000
_O_TMPFILE = 0x400000  # the bit of its own: a file without a name, which can be linked later
_ARCH_SET_FS = 0x1002
_NEW_LISTENER = 0x8
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
    0x40086604: "EXT4_IOC_SETVERSION, likewise, under the number that ext4 had for it first",
    0x6609: "EXT4_IOC_MIGRATE changes flags and layout through a descriptor that only reads",
    0x40047211: "FAT_IOCTL_SET_ATTRIBUTES, likewise: on FAT these are the modes",
    0x40186F04: "OCFS2_IOC_REFLINK makes a copy under a new name past every check of paths",
    0x800C6613: "FS_IOC_SET_ENCRYPTION_POLICY changes a folder that is only read",
    0xC0406618: "FS_IOC_REMOVE_ENCRYPTION_KEY locks files of others who read them",
    0xC0406619: "FS_IOC_REMOVE_ENCRYPTION_KEY_ALL_USERS, likewise",
    0x4008941A: "BTRFS_IOC_SUBVOL_SETFLAGS makes what is only read read-only or writable",
    0xC0C89425: "BTRFS_IOC_SET_RECEIVED_SUBVOL changes metadata of what is only read",
    0x50009402: "BTRFS_IOC_DEFRAG writes a file anew through a descriptor that only reads",
    0x40309410: "BTRFS_IOC_DEFRAG_RANGE, likewise",
    0x50009401: "BTRFS_IOC_SNAP_CREATE makes names past every check of paths",
    0x50009417: "BTRFS_IOC_SNAP_CREATE_V2, likewise",
    0x5000940E: "BTRFS_IOC_SUBVOL_CREATE, likewise",
    0x50009418: "BTRFS_IOC_SUBVOL_CREATE_V2, likewise",
    0x5000940F: "BTRFS_IOC_SNAP_DESTROY removes them likewise",
    0x5000943F: "BTRFS_IOC_SNAP_DESTROY_V2, likewise",
    0x4020BC10: "BCH_IOCTL_SUBVOLUME_CREATE copies what may not be read to where it may",
    0x4030BC1D: "BCH_IOCTL_SUBVOLUME_CREATE_v2, likewise",
    0x4020BC11: "BCH_IOCTL_SUBVOLUME_DESTROY removes names past every check of paths",
    0x4030BC1E: "BCH_IOCTL_SUBVOLUME_DESTROY_v2, likewise",
    0xF501: "F2FS_IOC_START_ATOMIC_WRITE changes what is only read, before Linux 6.12",
    0xF502: "F2FS_IOC_COMMIT_ATOMIC_WRITE, likewise",
    0xF503: "F2FS_IOC_START_VOLATILE_WRITE, likewise",
    0xF504: "F2FS_IOC_RELEASE_VOLATILE_WRITE, likewise",
    0xF505: "F2FS_IOC_ABORT_ATOMIC_WRITE, likewise",
    0xF519: "F2FS_IOC_START_ATOMIC_REPLACE, likewise: it empties the file",
    0x4004F50D: "F2FS_IOC_SET_PIN_FILE changes metadata through a descriptor that only reads",
    0xC0506617: "FS_IOC_ADD_ENCRYPTION_KEY leaves keys behind for the user's other processes",
}
# F_SETLEASE and F_SETDELEG, with which who only reads a file or a folder makes all wait who open it
# or change names in it.
_LEASES = (1024, 1040)

# Kinds of brokered calls, as the plan names them: with addresses of a network, with paths of
# sockets, and questions for names, which tell the broker what to look up.
_CONNECT, _SOCKET_PATHS, _NAMES = "connect", "socket paths", "names"
ADDRESS_CALLS = ("connect", "sendto", "sendmsg", "sendmmsg")
_LONGEST_QUESTION = 514
_LEVEL_SOCKET, _LEVEL_IP, _LEVEL_IP6 = 1, 0, 41
# SO_BINDTODEVICE, BINDTOIFINDEX. IP_UNICAST_IF. IPV6_2292PKTINFO, PKTINFO, UNICAST_IF.
_LINKS, _LINKS4, _LINKS6 = (25, 62), (50,), (2, 50, 76)
# IP_OPTIONS; IPV6_2292RTHDR, IPV6_2292PKTOPTIONS, IPV6_RTHDR.
_ROUTES4, _ROUTES6 = (4,), (5, 6, 57)
# MCAST_JOIN_GROUP, BLOCK_SOURCE, UNBLOCK_SOURCE, JOIN_SOURCE_GROUP, MSFILTER.
_GROUPS = (42, 43, 44, 46, 48)
# IP_ADD_MEMBERSHIP, UNBLOCK_SOURCE, BLOCK_SOURCE, ADD_SOURCE_MEMBERSHIP, MSFILTER.
_GROUPS4 = (35, 37, 38, 39, 41, *_GROUPS)
# IPV6_ADD_MEMBERSHIP, JOIN_ANYCAST.
_GROUPS6 = (20, 27, *_GROUPS)

_UNIX, _INET, _INET6, _NETLINK = 1, 2, 10, 16
_STREAM, _DATAGRAM, _SEQUENCE, _TYPE_MASK = 1, 2, 5, 0xF
_TCP, _UDP, _ROUTE = (0, 6), (0, 17), (0,)
# What each name of the plan opens. The protocol counts: MPTCP and SCTP are streams that Landlock
# does not see, ICMP is a datagram.
SOCKETS: Mapping[str, bpf.Row] = {
    "unix": ((0, _ALL, (_UNIX,)),),
    "tcp": ((0, _ALL, (_INET, _INET6)), (1, _TYPE_MASK, (_STREAM,)), (2, _ALL, _TCP)),
    "udp": ((0, _ALL, (_INET, _INET6)), (1, _TYPE_MASK, (_DATAGRAM,)), (2, _ALL, _UDP)),
    "netlink route": ((0, _ALL, (_NETLINK,)), (2, _ALL, _ROUTE)),
}


def argument_program(  # noqa: PLR0913 - what a plan says, each by its name
    machine: str,
    sockets: Collection[str],
    *,
    truncate_is_seen: bool,
    brokered: Collection[str] = (),
    left_out: Collection[str] = (),
    listens: bool = True,
) -> bytes:
    """Assemble the program that judges arguments, for these kinds of sockets.

    Calls that are left out are judged by a broker that asks the whole program.
    """
    listens = listens or _SOCKET_PATHS in brokered  # the broker lets unix sockets alone
    blocks = [*_fixed(), *_sockets(sockets, listens=listens)]
    blocks.extend(_opening(truncate_is_seen=truncate_is_seen))
    blocks.extend(_metadata(() if "metadata" not in brokered else METADATA_CALLS))
    blocks.extend(_socket_options(sockets, brokered))
    return _assemble(machine, [block for block in blocks if block[0] not in left_out])


def broker_program(machine: str, brokered: Collection[str]) -> bytes:
    """Assemble the program that makes these kinds of calls wait for the broker."""
    wholes = [names for kind, names in _WHOLES.items() if kind in brokered]
    chosen = _all_of(wholes[0]) if wholes else (*_brokered(brokered), *_starting(brokered))
    blocks = [*_alone(), *_looking(brokered), *chosen]
    known = {name for name, _ in blocks}
    blocks.extend(block for block in _with_addresses(brokered) if block[0] not in known)
    return _assemble(machine, blocks)


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
    yield "fcntl", bpf.if_masked(1, _ALL, _LEASES, refused)
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


def _sockets(sockets: Collection[str], *, listens: bool) -> Iterator[Block]:
    refused = bpf.errno_action(_EACCES)
    yield "socket", bpf.unless_rows([SOCKETS[name] for name in sockets], refused)
    if "unix" in sockets:
        yield "socketpair", bpf.unless_masked(0, _ALL, (_UNIX,), refused)
    else:  # a datagram's end could send to any path
        pair = ((0, _ALL, (_UNIX,)), (1, _TYPE_MASK, (_STREAM, _SEQUENCE)))
        yield "socketpair", bpf.unless_rows([pair], refused)
    # Without unix sockets a listener could only be one of the network, on a port that the kernel
    # chooses: nobody binds it, so Landlock is not asked.
    if not listens or "unix" not in sockets:
        yield "listen", bpf.answer(refused)


def _socket_options(sockets: Collection[str], brokered: Collection[str]) -> Iterator[Block]:
    """Refuse options that send packets elsewhere than to an address that was judged.

    Routes lead past it. On a link of the caller's choice the kernel looks for the address among the
    neighbours, whoever of them has taken it. Who joins a group, or says whom it hears there, has
    the kernel tell that to the network: to any address of the caller's choice, from no socket of
    the caller's.
    """
    if _CONNECT not in brokered and {"tcp", "udp"}.isdisjoint(sockets):
        return
    routes4, routes6 = (_ROUTES4, _ROUTES6) if _CONNECT in brokered else ((), ())
    rows = [
        ((1, _ALL, (_LEVEL_SOCKET,)), (2, _ALL, _LINKS)),
        ((1, _ALL, (_LEVEL_IP,)), (2, _ALL, (*routes4, *_LINKS4, *_GROUPS4))),
        ((1, _ALL, (_LEVEL_IP6,)), (2, _ALL, (*routes6, *_LINKS6, *_GROUPS6))),
    ]
    yield "setsockopt", bpf.if_rows(rows, bpf.errno_action(_EPERM))


def _metadata(brokered: Collection[str]) -> Iterator[Block]:
    for name in METADATA_CALLS:
        if name not in brokered:
            yield name, bpf.answer(bpf.errno_action(_EPERM))


def _opening(*, truncate_is_seen: bool) -> Iterator[Block]:
    """Judge what an open does beside opening.

    Nobody who is confined makes a file that lends its owner's rights. Nobody opens one neither to
    read nor to write (access mode 3): the kernel asks Landlock for no right then, and opens it all
    the same, devices as well. And before ABI 3, where Landlock is blind to truncation, reading must
    not be enough to empty a file.
    """
    refused = bpf.errno_action(_EACCES)
    empties = (_O_TRUNC, _O_TRUNC | _O_ACCMODE)
    for name, flags in (("open", 1), ("openat", 2)):
        lends = (flags + 1, _SET_ID_BITS, _SET_ID_VALUES)
        set_id = [((flags, bit, (bit,)), lends) for bit in (_O_CREAT, _O_TMPFILE)]
        for_nothing = ((flags, _O_PATH | _O_ACCMODE, (_O_ACCMODE,)),)
        truncation = ((flags, _O_TRUNC | _O_ACCMODE, empties),)
        rows = [*set_id, for_nothing, *([] if truncate_is_seen else [truncation])]
        yield name, bpf.if_rows(rows, refused)
    if not truncate_is_seen:
        yield "truncate", bpf.answer(refused)


def _alone() -> Iterator[Block]:
    """Let no other listener take the broker's place.

    The kernel allows one at a time, and another once the broker has ended: what a command leaves
    behind could then answer its own calls. Here, since this program itself is loaded with one.
    """
    yield "seccomp", bpf.if_any_bit(1, _NEW_LISTENER, bpf.errno_action(_EPERM))


def _all_of(names: Collection[str]) -> Iterator[Block]:
    for name in names:
        yield name, bpf.answer(bpf.NOTIFY)


def _with_addresses(kinds: Collection[str]) -> Iterator[Block]:
    """Make calls wait whose address is in memory; what has none in a register need not wait."""
    if _CONNECT not in kinds and _SOCKET_PATHS not in kinds:
        return
    longest = _LONGEST_QUESTION if _NAMES in kinds else -1
    yield "sendto", bpf.if_pointer_or_short(4, 2, longest, bpf.NOTIFY)
    for name in ("connect", "listen", "sendmmsg", "sendmsg"):
        yield name, bpf.answer(bpf.NOTIFY)


def _brokered(kinds: Collection[str]) -> Iterator[Block]:
    yield from _all_of(STANDING_CALLS if kinds else ())
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


def _starting(kinds: Collection[str]) -> Iterator[Block]:
    if kinds:  # where there is a broker anyway, it looks at what is started
        for name in ("execve", "execveat", "set_tid_address"):
            yield name, bpf.answer(bpf.NOTIFY)
        yield "arch_prctl", bpf.if_masked(0, _ALL, (_ARCH_SET_FS,), bpf.NOTIFY)


def _looking(kinds: Collection[str]) -> Iterator[Block]:
    if "look" in kinds:
        for name in LOOKING_CALLS:
            yield name, bpf.answer(bpf.NOTIFY)
