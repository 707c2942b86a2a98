"""A small interpreter of classic BPF, as the kernel runs it over one system call."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def run(
    program: bytes, number: int, *arguments: int, architecture: int, blind: bool = False
) -> int:
    """Interpret classic BPF over the data of one system call.

    One that is blind raises struct.error where it would look at an argument.
    """
    values = (*arguments, *(0,) * (6 - len(arguments)))
    data = struct.pack("<IIQ6Q", number, architecture, 0, *values)[: 8 if blind else None]
    code = list(struct.iter_unpack("<HBBI", program))
    accumulator = place = 0
    while True:
        operation, if_true, if_false, operand = code[place]
        place += 1
        if operation == 0x20:
            (accumulator,) = struct.unpack_from("<I", data, operand)
        elif operation == 0x54:
            accumulator &= operand
        elif operation == 0x05:  # the one jump that takes its distance from the operand
            place += operand
        elif operation == 0x06:
            return int(operand)
        else:
            place += if_true if JUMPS[operation](accumulator, operand) else if_false


JUMPS: dict[int, Callable[[int, int], bool]] = {
    0x15: lambda a, k: a == k,
    0x25: lambda a, k: a > k,
    0x35: lambda a, k: a >= k,
    0x45: lambda a, k: a & k != 0,
}
