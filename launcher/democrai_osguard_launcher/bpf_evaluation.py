"""Asks a seccomp program what it would answer, without the kernel. Pure.

Where a run is traced the broker sees calls that a program would have refused on its own. It asks
that very program, so that a traced run refuses what any other run refuses.
"""

from __future__ import annotations

import struct

from . import bpf

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_DATA = 0xFFFF  # of an action, beside its kind
_JUMPS: Mapping[int, Callable[[int, int], bool]] = {
    bpf.JUMP_IF_EQUAL: lambda found, wanted: found == wanted,
    bpf.JUMP_IF_AT_LEAST: lambda found, least: found >= least,
    bpf.JUMP_IF_ANY_BIT: lambda found, bits: found & bits != 0,
}


def refusal(action: int) -> int | None:
    """Return the errno that an action makes a call fail with; None when it does not fail."""
    return action & _DATA if action & ~_DATA == bpf.errno_action(0) else None


class Evaluation:
    """One program, taken apart once and asked often."""

    def __init__(self, program: bytes, architecture: int) -> None:
        self._code = tuple(struct.iter_unpack("<HBBI", program))
        self._architecture = architecture

    def action(self, number: int, arguments: tuple[int, ...]) -> int:
        """Return what the program answers to a call of this number with these registers."""
        data = struct.pack("<IIQ6Q", number, self._architecture, 0, *arguments)
        accumulator = place = 0
        while True:
            operation, if_true, if_false, operand = self._code[place]
            place += 1
            if operation == bpf.RETURN:
                return int(operand)
            if operation == bpf.LOAD:
                accumulator = int.from_bytes(data[operand : operand + 4], "little")
            elif operation == bpf.AND:
                accumulator &= operand
            else:
                place += if_true if _JUMPS[operation](accumulator, operand) else if_false
