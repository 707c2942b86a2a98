"""The seccomp programs that are built beforehand: which calls exist, and the plainest arguments.

Most commands need no other. `seccomp` assembles what a plan asks for beside them, and
`launcher/build_seccomp.py` has written these; a test compares.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

MACHINES = ("x86_64", "aarch64")
# Where Landlock sees truncation and nothing is brokered: one program for each kind of sockets.
PLAIN_ARGUMENTS: Mapping[tuple[str, ...], str] = {(): "arguments", ("unix",): "arguments_unix"}
_FOLDER = os.path.dirname(__file__)


def call_program(machine: str) -> bytes:
    """Return the program that says which calls exist."""
    return _read(file_name(machine, "calls"))


def argument_program(machine: str, sockets: tuple[str, ...]) -> bytes:
    """Return the program that judges arguments for these kinds of sockets."""
    return _read(file_name(machine, PLAIN_ARGUMENTS[sockets]))


def file_name(machine: str, program: str) -> str:
    """Say where a program is stored."""
    return os.path.join(_FOLDER, f"seccomp_{program}_{machine}.bpf")


def _read(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, os.fstat(descriptor).st_size)
    finally:
        os.close(descriptor)
