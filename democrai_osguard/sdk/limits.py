"""What a child process is held to by who runs it, checked before anything is started."""

from __future__ import annotations

import math
from dataclasses import dataclass

from democrai_osguard.errors import ContractError

STREAM_LIMIT = 2**16


@dataclass(frozen=True)
class Limits:
    """How long a child may take, how much it may write, and how much of a line is kept."""

    timeout: float | None = None
    max_output: int | None = None
    line: int = STREAM_LIMIT

    def __post_init__(self) -> None:
        """Raise TypeError for what is no number, ContractError for one that makes no sense."""
        if self.timeout is not None and math.isnan(_number("timeout", self.timeout)):
            raise ContractError(f"timeout: {self.timeout!r} is no time to wait")
        if self.max_output is not None and _whole("max_output", self.max_output) < 0:
            raise ContractError(f"max_output: {self.max_output!r} is no number of bytes")
        if _whole("limit", self.line) <= 0:
            raise ContractError(f"limit: {self.line!r} is no number of bytes")

    @property
    def seconds(self) -> float | None:
        """Return after how many seconds it is ended; None for never."""
        return None if self.timeout == math.inf else self.timeout


def _number(name: str, value: object) -> float:
    if not isinstance(value, int | float):
        raise TypeError(f"{name}: expected a number, not {value!r}")
    return float(value)


def _whole(name: str, value: object) -> int:
    if not isinstance(value, int):
        raise TypeError(f"{name}: expected a whole number, not {value!r}")
    return value
