"""Which BPF programs the kernel still has, by their number."""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from typing import TYPE_CHECKING, Final

from democrai_osguard_helper import kernel
from democrai_osguard_helper.bpf_hooks import HOOKS

if TYPE_CHECKING:
    from democrai_osguard_helper.cgroups import Box

_PROG_GET_FD_BY_ID: Final = 13
_libc = ctypes.CDLL(None, use_errno=True)


def attached(box: Box) -> set[int]:
    """Return the numbers of the programs on a box."""
    cgroup = os.open(box.path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        return {each for hook in HOOKS for each in kernel.prog_ids(cgroup, hook.attach_type)}
    finally:
        os.close(cgroup)


def is_loaded(number: int) -> bool:
    """Tell whether the kernel has a program of this number; it gives none out twice in a row."""
    attributes = ctypes.create_string_buffer(struct.pack("=III", number, 0, 0))
    call = (ctypes.c_long(kernel.bpf_number()), ctypes.c_int(_PROG_GET_FD_BY_ID))
    found = int(_libc.syscall(*call, attributes, ctypes.c_uint(12)))
    if found >= 0:
        os.close(found)
        return True
    assert ctypes.get_errno() == errno.ENOENT
    return False
