"""The roots of a plan, opened by steps, and a ruleset that has a rule for each of them.

The ruleset is made in the launcher's own process, but for the rule of the command's own folder in
/proc, which only the command's process can name. What each root is, is noted on the way: it must be
what it was when the plan was made.
"""

from __future__ import annotations

import os
import stat
import struct
from time import monotonic

from . import facts, kernel, landlock
from .enforcement import OWN_FOLDER
from .steps import ANYTHING, OWN_WORD, Draft, Room, Word
from .trial import HERE, text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .plan import Facts, Plan

    Add = Callable[[Draft, str, int, Room], None]

RULESET = 512  # where the descriptor of the ruleset is
_PATH_BENEATH = 1
_OPENED = os.O_PATH | os.O_CLOEXEC

# struct statx, of which only these are looked at.
_STATX = 256
_MOUNT = 0x4000
_WANTED = 0x1 | 0x100 | _MOUNT  # type and number
_COLUMNS = ((28, 2), (32, 8), (136, 8), (144, 8))  # place and size of type, number, device, mount
_LONGEST_USE, _MOST_USES = 1.0, 16


class Changed(Exception):
    """A root is no longer what it was a moment ago."""


class Roots:
    """Opens the roots of a plan, as long as they are what they were when it was made."""

    _latest: Roots | None = None  # whose rules the descriptor has

    def __init__(self, plan: Plan, seen: Facts, code: kernel.Code) -> None:
        self.code = code
        roots = [(path, rights) for path, rights, _ in plan.paths if path != OWN_FOLDER]
        planned = {path for path, _ in roots}
        roots += [(path, 0) for path in seen.kinds if path not in planned]
        found = [_look(path, seen) for path, _ in roots]
        self._expected = [b"".join(column) for column in zip(*found, strict=True)]
        files = [
            (path, rights if _is_folder(mode) else rights & landlock.FILE_RIGHTS)
            for (path, rights), (mode, *_) in zip(roots, found, strict=True)
        ]
        self._opening = _Survey(_add_root, plan, files)
        self._looking = _Survey(_look_at, plan, files)
        self._mounts = b""
        self._uses, self._made, self._served = 0, 0.0, 0

    def open(self) -> bool:
        """Have a ruleset; False when a root is not the one that the plan was made for."""
        if self._can_serve_again():
            self._uses += 1
            *found, mounts = self._looking.carry_out(self.code)
            is_same = found == self._expected and mounts == self._mounts
        else:
            self._uses, self._made, self._served = 1, monotonic(), 0
            *found, self._mounts = self._opening.carry_out(self.code)
            is_same = found == self._expected
        Roots._latest = self if is_same else None
        return is_same

    def serve(self, child: int) -> None:
        """Remember which process has entered the ruleset."""
        self._served = child

    def _can_serve_again(self) -> bool:
        """Tell whether the next process may enter the ruleset of the one before.

        Each that enters adds its own folder in /proc: so one after the other, never two at once.
        A file system that was away in between has lost its rules: so mounts are compared, too.
        """
        young = monotonic() - self._made < _LONGEST_USE and self._uses < _MOST_USES
        return Roots._latest is self and young and self._opening.knows_mounts and self._is_free()

    def _is_free(self) -> bool:
        if not self._served:
            return True
        try:
            os.kill(self._served, 0)
        except OSError as error:
            return isinstance(error, ProcessLookupError)
        return False


class _Survey:
    """Steps that note what each root is, whatever else they do with it."""

    def __init__(self, add: Add, plan: Plan, roots: Sequence[tuple[str, int]]) -> None:
        draft = Draft()
        draft.reserve(_STATX * len(roots))
        if add is _add_root:
            created = draft.add("landlock_create_ruleset", tuple(plan.handled), 24, 0)
            draft.pass_on(created, draft.add("dup3", 0, RULESET, os.O_CLOEXEC))
        for number, (path, rights) in enumerate(roots):
            add(draft, path, rights, Room(_STATX * number))
        self._last = draft.add("getpid", answers=0)
        self._steps = draft.seal()
        self._blank = bytes(len(self._steps.room))

    def carry_out(self, code: kernel.Code) -> list[bytes]:
        """Return types, numbers, devices and mounts, zeros where nothing is; less if it failed."""
        room = self._steps.room
        room[:] = self._blank
        self._steps.carry_out(code)
        if self._steps.reached != self._last:
            return [b""]
        views = {2: room.cast("H"), 8: room.cast("Q")}
        return [views[size][place // size :: _STATX // size].tobytes() for place, size in _COLUMNS]

    @property
    def knows_mounts(self) -> bool:
        """Tell whether the kernel has numbers of mounts that are not used again."""
        return bool(int.from_bytes(self._steps.room[:4], "little") & _MOUNT)


def open_roots(plan: Plan, seen: Facts, code: kernel.Code) -> Roots | None:
    """Return the roots of the plan, and open; None when they change at this very moment."""
    try:
        roots = Roots(plan, seen, code)
    except Changed:
        return None
    return roots if roots.open() else None


def _look(path: str, seen: Facts) -> tuple[bytes, bytes, bytes]:
    """Return type, number and device as the kernel will write them; zeros where nothing is."""
    kind, found = facts.look(path)
    if (seen.kinds.get(path, kind), seen.objects.get(path, found)) != (kind, found):
        raise Changed(path)
    try:
        status = os.stat(path)
    except OSError:
        return bytes(2), bytes(8), bytes(8)
    device = struct.pack("<2I", os.major(status.st_dev), os.minor(status.st_dev))
    return struct.pack("<H", status.st_mode), struct.pack("<Q", status.st_ino), device


def _is_folder(mode: bytes) -> bool:
    return stat.S_ISDIR(int.from_bytes(mode, "little"))


def _add_root(draft: Draft, path: str, rights: int, room: Room) -> None:
    opened = draft.add("openat", HERE, text(path), _OPENED, answers=ANYTHING, own=rights)
    flags = kernel.AT_EMPTY_PATH
    draft.pass_on(opened, draft.add("statx", 0, b"\0", flags, _WANTED, room))
    if rights:
        draft.add("landlock_add_rule", RULESET, _PATH_BENEATH, Word(opened, OWN_WORD), 0)
    draft.pass_on(opened, draft.add("close", 0))
    draft.skip_after_failure(opened)


def add_rule(draft: Draft, path: str, rights: int) -> int:
    """Have the process that carries this out add a root that only it can name; return the step."""
    opened = draft.add("openat", HERE, text(path), _OPENED, answers=ANYTHING, own=rights)
    rule = Word(opened, OWN_WORD)
    added = draft.add("landlock_add_rule", RULESET, _PATH_BENEATH, rule, 0)
    draft.skip_after_failure(opened)
    return added


def _look_at(draft: Draft, path: str, _rights: int, room: Room) -> None:
    draft.add("statx", HERE, text(path), 0, _WANTED, room, answers=ANYTHING)
