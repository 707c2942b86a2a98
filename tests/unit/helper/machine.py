"""A tiny interpreter for the eBPF that the helper writes: registers, a stack, four helpers."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Final

_STACK: Final = 1 << 32
_CONTEXT: Final = 2 << 32
_VALUE: Final = 3 << 32
_PACKET: Final = 4 << 32
_MASK: Final = 2**64 - 1
_SIZES: Final = {0x00: 4, 0x08: 2, 0x10: 1, 0x18: 8}


@dataclass
class Machine:
    """Runs one program on one context; maps are known by their descriptor."""

    context: bytes
    maps: dict[int, dict[bytes, int]]
    trie: int
    packet: bytes = b""
    registers: list[int] = field(default_factory=lambda: [0] * 11)
    stack: bytearray = field(default_factory=lambda: bytearray(512))

    def run(self, code: bytes) -> int:
        """Return what the program answers; a jump out of it, or 10,000 steps, is an error."""
        self.registers[1], self.registers[10] = _CONTEXT, _STACK + 512
        rows = list(struct.iter_unpack("<BBhi", code))
        place = 0
        for _ in range(10_000):
            operation, both, offset, value = rows[place]
            target, source = both & 15, both >> 4
            if operation == 0x95:
                return self.registers[0]
            if operation == 0x18:
                self.registers[target] = value
                place += 2
                continue
            place += 1 + self._step(operation, target, source, offset, value)
        raise AssertionError("the program does not end")

    def _step(self, operation: int, target: int, source: int, offset: int, value: int) -> int:
        registers = self.registers
        kind = operation & 7
        if operation == 0x85:
            self._call(value)
        elif operation == 0x05 or (kind == 5 and self._jumps(operation, registers[target], value)):
            return offset
        elif kind == 7 or operation == 0xDC:
            registers[target] = self._arithmetic(
                operation, registers[target], registers[source], value
            )
        elif kind == 1:
            registers[target] = self._load(registers[source] + offset, _SIZES[operation & 0x18])
        elif operation == 0xDB:
            return 0
        elif kind in {2, 3}:
            number = value if kind == 2 else registers[source]
            self._store(registers[target] + offset, _SIZES[operation & 0x18], number)
        return 0

    @staticmethod
    def _jumps(operation: int, register: int, value: int) -> bool:
        return (register == value & _MASK) is (operation == 0x15)

    @staticmethod
    def _arithmetic(operation: int, old: int, other: int, value: int) -> int:
        return {
            0xBF: other,
            0xB7: value & _MASK,
            0x07: (old + value) & _MASK,
            0x57: old & value & _MASK,
            0x77: old >> (value & 63),
            0xDC: int.from_bytes((old & 0xFFFF).to_bytes(2, "little"), "big"),
        }[operation]

    def _load(self, address: int, size: int) -> int:
        area, place = divmod(address, 1 << 32)
        memory = {1: bytes(self.stack), 2: self.context, 3: bytes(8)}[area]
        assert 0 <= place <= len(memory) - size
        return int.from_bytes(memory[place : place + size], "little")

    def _store(self, address: int, size: int, number: int) -> None:
        assert _STACK <= address <= _STACK + 512 - size
        place = address - _STACK
        self.stack[place : place + size] = (number & (256**size - 1)).to_bytes(size, "little")

    def _bytes(self, address: int, size: int) -> bytes:
        place = address - _STACK
        return bytes(self.stack[place : place + size])

    def _call(self, helper: int) -> None:
        one, two, three, four = self.registers[1:5]
        if helper == 1:
            self.registers[0] = _VALUE if self._found(one, two) else 0
        elif helper == 2:
            key = self._bytes(two, 20)
            self.maps[one][key] = 1
            self.registers[0] = 0
        elif helper == 26:
            part = self.packet[two : two + four]
            self.registers[0] = 0 if len(part) == four else _MASK
            self.stack[three - _STACK : three - _STACK + len(part)] = part
        elif helper == 46:
            self.registers[0] = 77
        self.registers[1:6] = [0xBAD] * 5

    def _found(self, descriptor: int, address: int) -> bool:
        if descriptor != self.trie:
            return any(self._bytes(address, len(key)) == key for key in self.maps[descriptor])
        asked = self._bytes(address + 4, 20)
        return any(_covers(key, asked) for key in self.maps[descriptor])


def _covers(key: bytes, asked: bytes) -> bool:
    bits = int.from_bytes(key[:4], "little")
    shift = 160 - bits
    return int.from_bytes(key[4:], "big") >> shift == int.from_bytes(asked, "big") >> shift
