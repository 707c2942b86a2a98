"""Lists of system calls that a few instructions carry out, one after the other.

Python decides what is called and which answers are the right ones, and writes that down; then
`steps_<machine>.bin` (built from `launcher/steps_<machine>.S`) makes the calls: in this process,
or in a child that shares its memory until it becomes another program. So no page is copied for
the child, and no Python runs in it.

A list is two words of eight bytes, how far it came (the address of a step) and the flags of a
clone (0: no child), and then steps of twelve words:

    0      number of the call
    1-5    its arguments
    6      which answers go on: bit 0 is success, bit n the errno n, bit 63 each errno from 63 on
    7, 8   addresses at which the answer is wanted as well
    9      address of the step that follows a failure; after a success it is the next one
    10     a word of the writer's own
    11     the answer

After an answer that does not go on a child ends with exit code 125, and this process returns.
"""

from __future__ import annotations

import os
import struct

from . import kernel
from .record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    from .trial import Later

    Content: TypeAlias = "int | bytes | tuple[Content, ...]"
    Argument: TypeAlias = "Content | Word | Room | Later"

SUCCESS = 1
ANYTHING = (1 << 64) - 1
OWN_WORD = 10
LARGEST = 63  # of the bits; it stands for larger errnos too
_FIRST_ARGUMENT, _ANSWER = 1, 11
_MOST_ARGUMENTS, _MOST_WANTED = 5, 2
_WORD, _STEP, _HEADER = 8, 12, 2
_STEP_SIZE = _WORD * _STEP
_LARGEST_ERRNO = 4095
_FULL = (1 << 64) - 1


class Word(Record):
    """The address of a word of a step."""

    step: int
    place: int


class Room(Record):
    """The address of a place for what a call writes."""

    start: int


class Draft:
    """Steps are being collected."""

    def __init__(self) -> None:
        self._steps: list[tuple[int, tuple[Argument, ...], int, int]] = []
        self._wanted: dict[int, list[Word]] = {}
        self._followers: dict[int, int] = {}
        self._room = 0

    def add(self, name: str, *arguments: Argument, answers: int = SUCCESS, own: int = 0) -> int:
        """Add a call and return its place in the list."""
        if len(arguments) > _MOST_ARGUMENTS:
            raise ValueError(f"{name}: too many arguments")
        self._steps.append((kernel.number_of(name), arguments, answers, own))
        return len(self._steps) - 1

    def pass_on(self, source: int, target: int, argument: int = 0) -> None:
        """Have the answer of one step become an argument of a later one."""
        wanted = self._wanted.setdefault(source, [])
        wanted.append(Word(target, _FIRST_ARGUMENT + argument))
        if len(wanted) > _MOST_WANTED:
            raise ValueError("an answer is wanted at too many places")

    def skip_after_failure(self, step: int) -> None:
        """Have a failure of this step be followed by what is added next."""
        self._followers[step] = len(self._steps)

    def reserve(self, size: int) -> Room:
        """Make room for what a call writes."""
        room = Room(self._room)
        self._room += size
        return room

    def seal(self, flags: int = 0) -> Steps:
        """Return the list as the machine reads it; the flags are those of a clone."""
        before = _WORD * _HEADER + _STEP_SIZE * len(self._steps) + self._room
        named = sum(_size(each) for _, arguments, *_ in self._steps for each in arguments)
        memory, address = kernel.memory(before + named)
        content = b"".join(self._packed(address, flags))
        memoryview(memory).cast("B")[: len(content)] = content
        return Steps(memory, address, len(self._steps), self._room)

    def _packed(self, address: int, flags: int) -> list[bytes]:
        """Lay everything out for memory at this address: head, steps, room, and what they name."""
        first = address + _WORD * _HEADER
        room = first + _STEP_SIZE * len(self._steps)
        heap = _Heap(room + self._room)

        def value(of: Argument) -> int:
            if isinstance(of, int):
                return of & _FULL
            if isinstance(of, Word):
                return first + _STEP_SIZE * of.step + _WORD * of.place
            if isinstance(of, Room):
                return room + of.start
            return heap.put(of) if isinstance(of, (bytes, tuple)) else 0

        words = [word for place in range(len(self._steps)) for word in self._words(place, value)]
        steps = struct.pack(f"<{len(words)}Q", *words)
        return [struct.pack("<2Q", 0, flags), steps, bytes(self._room), *heap.pieces]

    def _words(self, place: int, value: Callable[[Argument], int]) -> list[int]:
        number, arguments, answers, own = self._steps[place]
        passed = [value(each) for each in arguments]
        passed += [0] * (_MOST_ARGUMENTS - len(passed))
        here = value(Word(place, 0))
        wanted = [value(each) for each in self._wanted.get(place, ())]
        wanted += [here + _WORD * _ANSWER] * (_MOST_WANTED - len(wanted))
        skipped = self._followers.get(place, place + 1) - place
        return [number, *passed, answers, *wanted, here + _STEP_SIZE * skipped, own, 0]


def _size(of: Argument) -> int:
    """Return how much memory an argument needs beside its word."""
    if isinstance(of, bytes):
        return len(of) + -len(of) % _WORD
    if type(of) is tuple:
        return sum(_WORD + _size(each) for each in of)
    return 0


class _Heap:
    """What arguments point to, each piece at an address that is a multiple of eight."""

    def __init__(self, address: int) -> None:
        self._end = address
        self.pieces: list[bytes] = []

    def put(self, content: Content) -> int:
        """Return a number as it is, and the address of anything else; a tuple is words."""
        if isinstance(content, int):
            return content & _FULL
        if isinstance(content, tuple):
            content = struct.pack(f"<{len(content)}Q", *map(self.put, content))
        address = self._end
        self.pieces.append(content + bytes(-len(content) % _WORD))
        self._end += len(self.pieces[-1])
        return address


class Steps:
    """A list that can be carried out, as often as one likes."""

    def __init__(self, memory: kernel.Memory, address: int, count: int, room: int) -> None:
        self._memory, self._first = memory, address + _WORD * _HEADER
        end = _WORD * (_HEADER + _STEP * count)
        whole = memoryview(memory).cast("B")
        self._words = whole[: end // _WORD * _WORD].cast("Q")
        self.room = whole[end : end + room]

    def set_argument(self, step: int, value: int, argument: int = 0) -> None:
        """Change an argument."""
        self._words[_HEADER + _STEP * step + _FIRST_ARGUMENT + argument] = value & _FULL

    def answer(self, step: int) -> int:
        """Return the errno that the step ended with last, 0 for success."""
        answer = self._words[_HEADER + _STEP * step + _ANSWER]
        return _FULL + 1 - answer if answer > _FULL - _LARGEST_ERRNO else 0

    def forget(self, step: int) -> None:
        """Have a step that is not carried out next time count as ended well."""
        self._words[_HEADER + _STEP * step + _ANSWER] = 0

    @property
    def reached(self) -> int:
        """Return the step at which it ended last."""
        return (self._words[0] - self._first) // _STEP_SIZE

    def carry_out(self, code: kernel.Code) -> int:
        """Make the calls; return 0, or what the clone has answered."""
        self._words[0] = self._first  # a child may end before it has made one
        return int(code(self._memory))


def machine_code() -> kernel.Code | None:
    """Return what carries lists out, None where there is none for this machine or it is refused."""
    path = os.path.join(os.path.dirname(__file__), f"steps_{os.uname().machine}.bin")
    try:
        return kernel.map_code(path)
    except (OSError, KeyError):
        return None
