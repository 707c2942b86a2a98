"""The calls that look at a path without opening it, and where they say which."""

from __future__ import annotations

from .record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

AT_SYMLINK_NOFOLLOW, AT_EMPTY_PATH = 0x100, 0x1000
_IN_DONT_FOLLOW = 0x02000000


class Sight(Record):
    """Which arguments are the path, its folder and the flags; None where there is none."""

    path: int
    folder: int | None = None
    flags: int | None = None
    follows: bool = True
    stays: int = AT_SYMLINK_NOFOLLOW  # the flag that keeps a link from being followed


SIGHTS: Mapping[str, Sight] = {
    "stat": Sight(0),
    "lstat": Sight(0, follows=False),
    "newfstatat": Sight(1, 0, 3),
    "statx": Sight(1, 0, 2),
    "access": Sight(0),
    "faccessat": Sight(1, 0),
    "faccessat2": Sight(1, 0, 3),
    "readlink": Sight(0, follows=False),
    "readlinkat": Sight(1, 0, follows=False),
    "statfs": Sight(0),
    "getxattr": Sight(0),
    "lgetxattr": Sight(0, follows=False),
    "listxattr": Sight(0),
    "llistxattr": Sight(0, follows=False),
    "inotify_add_watch": Sight(1, None, 2, stays=_IN_DONT_FOLLOW),
}
