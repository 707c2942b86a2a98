"""Programs that hold a process where it is: a service manager's or a container's, not ours.

A sandbox is elsewhere in the tree of cgroups, out of their reach. Who may ask for one must not get
rid of them so.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Final

from . import kernel

if TYPE_CHECKING:
    from collections.abc import Mapping

# Each place of a cgroup where a program can be attached, by the kernel's number. Add what a newer
# kernel has: one that is not listed here is not looked at.
PLACES: Final[Mapping[int, str]] = {
    0: "ingress",
    1: "egress",
    2: "create",
    3: "sock_ops",
    6: "device",
    8: "bind4",
    9: "bind6",
    10: "connect4",
    11: "connect6",
    12: "post_bind4",
    13: "post_bind6",
    14: "sendmsg4",
    15: "sendmsg6",
    18: "sysctl",
    19: "recvmsg4",
    20: "recvmsg6",
    21: "getsockopt",
    22: "setsockopt",
    29: "getpeername4",
    30: "getpeername6",
    31: "getsockname4",
    32: "getsockname6",
    34: "release",
    43: "lsm",
    49: "connect_unix",
    50: "sendmsg_unix",
    51: "recvmsg_unix",
    52: "getpeername_unix",
    53: "getsockname_unix",
}
_OLDEST: Final = 1  # every kernel that has any has this one


def left_behind(old: str, new: str) -> tuple[str, ...]:
    """Name the places where programs hold whoever is in the one cgroup and not in the other.

    Raise OSError where nobody can say. Without bpf(2) there are none.
    """
    try:
        before = _in_force(old)
    except OSError as error:
        if error.errno == errno.ENOSYS:
            return ()
        raise
    if not before:
        return ()
    after = _in_force(new)
    return tuple(PLACES[place] for place, ids in before.items() if ids - after.get(place, set()))


def _in_force(folder: str) -> dict[int, set[int]]:
    cgroup = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return {
            place: set(kernel.prog_ids(cgroup, place, inherited=True))
            for place in PLACES
            if _has_any(cgroup, place)
        }
    finally:
        os.close(cgroup)


def _has_any(cgroup: int, place: int) -> bool:
    try:
        return kernel.prog_count(cgroup, place) > 0
    except OSError as error:
        if error.errno == errno.EINVAL and place != _OLDEST:
            return False  # this kernel has no such place
        raise
