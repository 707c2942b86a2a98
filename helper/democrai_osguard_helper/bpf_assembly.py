"""A very small assembler for eBPF. Pure: calls collect instructions, `code` returns bytes.

Only little-endian machines: the programs store addresses and ports as they lie in memory.
"""

from __future__ import annotations

import struct
from typing import Final

R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, R10 = range(11)  # r10 is the read-only frame pointer
WORD, HALF, BYTE, DOUBLE = 0x00, 0x08, 0x10, 0x18
EQ, NE = 0x15, 0x55  # jump on comparison with a constant
LOAD_MAP: Final = 0x18  # the only 64-bit constant that we load is a map
_PSEUDO_MAP: Final = 1
_ATOMIC_ADD: Final = 0xDB


class Assembly:
    """A program that is being written; jumps name labels that may come later."""

    def __init__(self) -> None:
        self._rows: list[tuple[int, int, int, int, int]] = []
        self._labels: dict[str, int] = {}
        self._jumps: dict[int, str] = {}

    def move(self, target: int, source: int) -> None:
        """Copy a register."""
        self._add(0xBF, target, source)

    def set(self, target: int, value: int) -> None:
        """Give a register a constant."""
        self._add(0xB7, target, value=value)

    def add(self, target: int, value: int) -> None:
        """Add a constant."""
        self._add(0x07, target, value=value)

    def subtract(self, target: int, source: int) -> None:
        """Take one register away from another."""
        self._add(0x1F, target, source)

    def mask(self, target: int, value: int) -> None:
        """Keep the bits of a constant."""
        self._add(0x57, target, value=value)

    def shift_right(self, target: int, bits: int) -> None:
        """Shift a register to the right, filling with zeros."""
        self._add(0x77, target, value=bits)

    def network_order_16(self, target: int) -> None:
        """Turn the low 16 bits into network order and clear the rest."""
        self._add(0xDC, target, value=16)

    def load(self, size: int, target: int, source: int, offset: int) -> None:
        """Read memory at source + offset."""
        self._add(0x61 | size, target, source, offset)

    def store(self, size: int, target: int, offset: int, source: int) -> None:
        """Write a register to memory at target + offset."""
        self._add(0x63 | size, target, source, offset)

    def store_value(self, size: int, target: int, offset: int, value: int) -> None:
        """Write a constant to memory at target + offset."""
        self._add(0x62 | size, target, 0, offset, value)

    def count_up(self, target: int, source: int) -> None:
        """Add a register to the 64-bit number at target, atomically."""
        self._add(_ATOMIC_ADD, target, source)

    def load_map(self, target: int, descriptor: int) -> None:
        """Point a register at a map."""
        self._add(LOAD_MAP, target, _PSEUDO_MAP, 0, descriptor)
        self._add(0x00)

    def call(self, helper: int) -> None:
        """Call a helper of the kernel; r1 to r5 are lost."""
        self._add(0x85, value=helper)

    def jump_if(self, comparison: int, register: int, value: int, label: str) -> None:
        """Jump when the register compares so with the constant."""
        self._jumps[len(self._rows)] = label
        self._add(comparison, register, value=value)

    def jump(self, label: str) -> None:
        """Jump always."""
        self._jumps[len(self._rows)] = label
        self._add(0x05)

    def label(self, name: str) -> None:
        """Name the next instruction; a name stands once."""
        if name in self._labels:
            raise ValueError(f"label {name} stands twice")
        self._labels[name] = len(self._rows)

    def answer(self, value: int) -> None:
        """Leave the program with this answer."""
        self.set(R0, value)
        self._add(0x95)

    def code(self) -> bytes:
        """Return the program as the kernel takes it."""
        return b"".join(self._encoded(place) for place in range(len(self._rows)))

    def _encoded(self, place: int) -> bytes:
        operation, target, source, offset, value = self._rows[place]
        if place in self._jumps:
            offset = self._labels[self._jumps[place]] - place - 1
        return struct.pack("<BBhi", operation, target | source << 4, offset, value)

    def _add(
        self, operation: int, target: int = 0, source: int = 0, offset: int = 0, value: int = 0
    ) -> None:
        self._rows.append((operation, target, source, offset, value))
