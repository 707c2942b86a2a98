"""File system calls. A composite call lists each of its effects."""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING

from democrai_osguard.guard.patches.rows import Call, Touches

if TYPE_CHECKING:
    from collections.abc import Callable

_PATH = "path"
FILE_CALLS = (
    Call("posix", "listdir", (Touches("read", 0, _PATH),)),
    Call("posix", "readlink", (Touches("read", 0, _PATH, "name"),)),
    Call("posix", "statvfs", (Touches("read", 0, _PATH),)),
    Call("posix", "pathconf", (Touches("read", 0, _PATH),)),
    Call("posix", "chdir", (Touches("read", 0, _PATH, "plain"),)),
    Call("posix", "getxattr", (Touches("read", 0, _PATH),)),
    Call("posix", "listxattr", (Touches("read", 0, _PATH),)),
    Call("posix", "setxattr", (Touches("modify", 0, _PATH),)),
    Call("posix", "removexattr", (Touches("modify", 0, _PATH),)),
    Call("posix", "chmod", (Touches("modify", 0, _PATH),)),
    Call("posix", "chown", (Touches("modify", 0, _PATH),)),
    Call("posix", "lchown", (Touches("modify", 0, _PATH, "name"),)),
    Call("posix", "utime", (Touches("modify", 0, _PATH),)),
    Call("posix", "truncate", (Touches("modify", 0, _PATH),)),
    Call("posix", "mkdir", (Touches("create", 0, _PATH, "name"),)),
    Call("posix", "mkfifo", (Touches("create", 0, _PATH, "name"),)),
    Call("posix", "mknod", (Touches("create", 0, _PATH, "name"),)),
    Call("posix", "rmdir", (Touches("delete", 0, _PATH, "name"),)),
    Call("posix", "remove", (Touches("delete", 0, _PATH, "name"),)),
    Call("posix", "unlink", (Touches("delete", 0, _PATH, "name"),)),
    # A rename removes here and appears there, perhaps over what was there: two decisions.
    Call(
        "posix", "rename", (Touches("delete", 0, "src", "name"), Touches("write", 1, "dst", "name"))
    ),
    Call(
        "posix",
        "replace",
        (Touches("delete", 0, "src", "name"), Touches("write", 1, "dst", "name")),
    ),
    Call("posix", "link", (Touches("read", 0, "src", "name"), Touches("create", 1, "dst", "name"))),
    # What a link says is no access yet; following it is.
    Call("posix", "symlink", (Touches("create", 1, "dst", "name"),)),
)
# Judged by doors of their own, because they are called so often: see `wrappers`.
HOT_CALLS = ("stat", "lstat", "open", "access", "scandir")

# C code that acts without telling anybody; what each touches is in `sealed.silent`.
SILENT_CALLS = (
    ("_dbm", "open"),
    ("_gdbm", "open"),
    ("readline", "read_init_file"),
    ("readline", "read_history_file"),
    ("readline", "write_history_file"),
    ("readline", "append_history_file"),
    ("readline", "parse_and_bind"),
    ("_posixshmem", "shm_open"),
    ("_posixshmem", "shm_unlink"),
    ("posix", "chroot"),
    ("posix", "setns"),
    ("posix", "unshare"),
    ("sys", "activate_stack_trampoline"),
    ("gc", "set_debug"),
)
# Probes that answer False to any error: a refusal must not look like an absence.
# Module, probe, the door that it asks, and what the file must be.
PROBES: tuple[tuple[str, str, str, Callable[[int], bool] | None], ...] = (
    ("genericpath", "exists", "quick_stat", None),
    ("genericpath", "isfile", "quick_stat", stat.S_ISREG),
    ("genericpath", "isdir", "quick_stat", stat.S_ISDIR),
    ("genericpath", "islink", "quick_lstat", stat.S_ISLNK),
    ("genericpath", "lexists", "quick_lstat", None),
    ("posixpath", "lexists", "quick_lstat", None),
    ("posixpath", "islink", "quick_lstat", stat.S_ISLNK),
)
