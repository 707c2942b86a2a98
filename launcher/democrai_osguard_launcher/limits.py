"""Resource limits of the command. The kernel keeps them across exec, and only root raises them."""

from __future__ import annotations

import resource

from .errors import NotEnforced, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import TypeVar

    Limit = tuple[str, int]
    Answer = TypeVar("Answer")

NAMES: Mapping[str, int] = {
    "cpu": resource.RLIMIT_CPU,
    "files": resource.RLIMIT_NOFILE,
    "fsize": resource.RLIMIT_FSIZE,
    "memory": resource.RLIMIT_AS,
    "nproc": resource.RLIMIT_NPROC,
    "stack": resource.RLIMIT_STACK,
}
_LARGEST = (1 << 63) - 1  # what the kernel's interface holds; more means no limit to it
_MOST_DIGITS = len(str(_LARGEST))
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def parse(text: str) -> Limit:
    """Read `name=number`, where the number may end in k, m or g; raise UsageError."""
    name, _, value = text.partition("=")
    if name not in NAMES:
        raise UsageError(f"--limit: {name!r} is not a limit ({', '.join(NAMES)})")
    digits = value.lower().rstrip("kmg")
    unit = value.lower()[len(digits) :]
    if not digits.isascii() or not digits.isdigit() or unit not in _UNITS:
        raise UsageError(f"--limit: {text!r} has no number such as 64 or 512m")
    number = int(digits) * _UNITS[unit] if len(digits) <= _MOST_DIGITS else _LARGEST + 1
    if number > _LARGEST:
        raise UsageError(f"--limit: {name} can be at most {_LARGEST}")
    return name, number


def notes(limits: Iterable[Limit], *, root: bool) -> tuple[str, ...]:
    """Say which of the limits the kernel does not hold root to."""
    if root and any(name == "nproc" for name, _ in limits):
        return (
            "--limit nproc: without effect, because the kernel does not count root's processes",
        )
    return ()


def apply(limits: Iterable[Limit]) -> None:
    """Lower the limits of this process; raise NotEnforced where that is refused."""
    for name, value in limits:
        try:
            resource.setrlimit(NAMES[name], (value, value))
        except (OSError, ValueError, OverflowError) as error:
            raise NotEnforced(f"--limit {name}={value}: {error}") from error


def limit_of(process: int, name: str) -> int:
    """Return the limit that the kernel holds a process to just now; less than 0 where none is."""
    return resource.prlimit(process, NAMES[name])[0]


def within(name: str, limit: int, act: Callable[[], Answer]) -> Answer:
    """Do something under somebody's limit, which is ours meanwhile, so that the kernel judges it.

    Raise ValueError where that is more than we could have ourselves.
    """
    own = resource.getrlimit(NAMES[name])
    if limit == own[0]:
        return act()
    resource.setrlimit(NAMES[name], (limit, own[1]))
    try:
        return act()
    finally:
        resource.setrlimit(NAMES[name], own)
