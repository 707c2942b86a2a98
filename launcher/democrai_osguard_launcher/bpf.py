"""A very small assembler for seccomp's classic BPF. Pure: it returns bytes.

A program is a row of blocks, one for each call that it looks at. A block begins with a jump over
itself for any other call and always returns, so blocks know nothing of each other.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    Instruction = tuple[int, int, int, int]  # code, jump if true, jump if false, operand
    # Holds when each argument, under its mask, is one of the values: (argument, mask, values).
    Row = Sequence[tuple[int, int, Sequence[int]]]

KILL_PROCESS = 0x80000000
NOTIFY = 0x7FC00000
ALLOW = 0x7FFF0000
_ERRNO = 0x00050000

LOAD = 0x20  # BPF_LD | BPF_W | BPF_ABS
AND = 0x54
JUMP_IF_EQUAL = 0x15
JUMP_IF_AT_LEAST = 0x35
JUMP_IF_ANY_BIT = 0x45
RETURN = 0x06
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16  # offsets in struct seccomp_data
_X32_BIT = 0x40000000


def errno_action(code: int) -> int:
    """Return the action that makes a call fail with this errno."""
    return _ERRNO | code


def program(architecture: int, blocks: Iterable[Sequence[Instruction]]) -> bytes:
    """Assemble the blocks behind the checks that every program begins with."""
    code: list[Instruction] = [
        (LOAD, 0, 0, _ARCHITECTURE),
        (JUMP_IF_EQUAL, 1, 0, architecture),
        (RETURN, 0, 0, KILL_PROCESS),
        (LOAD, 0, 0, _NUMBER),
        # x32 calls share the architecture of x86_64 and have this bit in their number.
        (JUMP_IF_AT_LEAST, 0, 1, _X32_BIT),
        (RETURN, 0, 0, KILL_PROCESS),
    ]
    for block in blocks:
        code.extend(block)
    code.append((RETURN, 0, 0, ALLOW))
    return b"".join(_encode(instruction) for instruction in code)


def block(number: int, body: Sequence[Instruction]) -> list[Instruction]:
    """Make a block for one call; the body must return on every path."""
    return [(JUMP_IF_EQUAL, 0, len(body), number), *body]


def answer(action: int) -> list[Instruction]:
    """Answer the call, whatever its arguments are."""
    return [(RETURN, 0, 0, action)]


def if_any_bit(argument: int, mask: int, action: int) -> list[Instruction]:
    """Answer with the action when the argument has any of these bits."""
    return [
        _load(argument),
        (JUMP_IF_ANY_BIT, 0, 1, mask),
        (RETURN, 0, 0, action),
        (RETURN, 0, 0, ALLOW),
    ]


def if_masked(argument: int, mask: int, values: Sequence[int], action: int) -> list[Instruction]:
    """Answer with the action when the argument under the mask is one of the values."""
    return _membership(argument, mask, values, found=action, otherwise=ALLOW)


def unless_masked(
    argument: int, mask: int, values: Sequence[int], action: int
) -> list[Instruction]:
    """Answer with the action when the argument under the mask is none of the values."""
    return _membership(argument, mask, values, found=ALLOW, otherwise=action)


def unless_rows(rows: Sequence[Row], action: int) -> list[Instruction]:
    """Answer with the action unless one row holds."""
    return _rows(rows, found=ALLOW, otherwise=action)


def if_rows(rows: Sequence[Row], action: int) -> list[Instruction]:
    """Answer with the action when one row holds."""
    return _rows(rows, found=action, otherwise=ALLOW)


def if_pointer_or_short(pointer: int, size: int, longest: int, action: int) -> list[Instruction]:
    """Answer with the action when the one argument is not 0, or the other at most so much."""
    return [
        _load(pointer),
        (JUMP_IF_EQUAL, 0, 7, 0),
        _load_upper(pointer),
        (JUMP_IF_EQUAL, 0, 5, 0),
        _load(size),
        (JUMP_IF_AT_LEAST, 2, 0, longest + 1),
        _load_upper(size),
        (JUMP_IF_EQUAL, 1, 0, 0),
        (RETURN, 0, 0, ALLOW),
        (RETURN, 0, 0, action),
    ]


def _rows(rows: Sequence[Row], *, found: int, otherwise: int) -> list[Instruction]:
    code: list[Instruction] = []
    for row in rows:
        code.extend(_row(row, found))
    code.append((RETURN, 0, 0, otherwise))
    return code


def _row(row: Row, found: int) -> list[Instruction]:
    code: list[Instruction] = [(RETURN, 0, 0, found)]
    for argument, mask, values in reversed(row):
        tests = [
            (
                JUMP_IF_EQUAL,
                len(values) - place - 1,
                0 if place < len(values) - 1 else len(code),
                k,
            )
            for place, k in enumerate(values)
        ]
        code = [_load(argument), (AND, 0, 0, mask), *tests, *code]
    return code


def _membership(
    argument: int, mask: int, values: Sequence[int], *, found: int, otherwise: int
) -> list[Instruction]:
    tests = [(JUMP_IF_EQUAL, len(values) - place, 0, k) for place, k in enumerate(values)]
    return [
        _load(argument),
        (AND, 0, 0, mask),
        *tests,
        (RETURN, 0, 0, otherwise),
        (RETURN, 0, 0, found),
    ]


def _load(argument: int) -> Instruction:
    # The low half (little-endian): the arguments that we look at are 32 bits wide to the kernel,
    # which drops the upper half of the register, so a filter that compared it could be fooled.
    return (LOAD, 0, 0, _ARGUMENTS + 8 * argument)


def _load_upper(argument: int) -> Instruction:
    return (LOAD, 0, 0, _ARGUMENTS + 8 * argument + 4)


def _encode(instruction: Instruction) -> bytes:
    code, if_true, if_false, operand = instruction
    return b"".join(
        (
            code.to_bytes(2, "little"),
            bytes((if_true, if_false)),
            (operand & 0xFFFFFFFF).to_bytes(4, "little"),
        )
    )
