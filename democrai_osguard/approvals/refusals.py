"""Which refusals are written down at once, and which are only counted. Pure.

Code that is refused may try again as often as it likes. The first of a kind is written down, its
repetitions are counted; beyond so many a second, only how many there were is kept.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

WINDOW_SECONDS = 10.0  # after so long, what was counted is written down
BURST = 100.0  # refusals that are written down at once
PER_SECOND = 10.0  # and then so many a second
TARGET_LIMIT = 4096  # characters of a target, and of a reason


@dataclass(frozen=True, slots=True)
class Refusal:
    """One kind of refusal: equal ones are counted together."""

    code: str
    reason: str
    subject: str
    resource_type: str | None
    operation: str | None
    target: str
    session: str | None

    @classmethod
    def of(  # noqa: PLR0913 - the fields of a refusal
        cls, *, code: str, reason: str, subject: str, resource_type: str | None,
        operation: str | None, target: str, session: str | None,
    ) -> Refusal:  # fmt: skip
        """Return a refusal whose texts are no longer than a record bears."""
        texts = _cut(reason), subject, resource_type, operation, _cut(target), session
        return cls(code, *texts)

    def fields(self, count: int = 1) -> dict[str, object]:
        """Return it as the audit log keeps it."""
        return {**asdict(self), "count": count}


@dataclass(frozen=True, slots=True)
class Counted:
    """What was counted since the window began."""

    repeated: tuple[tuple[Refusal, int], ...] = ()
    omitted: int = 0


class RefusalMeter:
    """Decides what is written. Its caller sees to it that one thread asks at a time."""

    def __init__(self, now: float) -> None:
        self._since = self._filled = now
        self._room = BURST
        self._seen: dict[Refusal, int] = {}
        self._omitted = 0

    def admits(self, refusal: Refusal, now: float) -> bool:
        """Tell whether this one is to be written down; else it is counted."""
        self._room = min(BURST, self._room + (now - self._filled) * PER_SECOND)
        self._filled = now
        if refusal in self._seen:
            self._seen[refusal] += 1
            return False
        if self._room < 1:
            self._omitted += 1
            return False
        self._room -= 1
        self._seen[refusal] = 0
        return True

    def omit(self, count: int = 1) -> None:
        """Count refusals that could not be written."""
        self._omitted += count

    def counted(self, now: float, *, at_once: bool = False) -> Counted:
        """Return what is due to be written, and begin to count anew."""
        if not at_once and now - self._since < WINDOW_SECONDS:
            return Counted()
        repeated = tuple((refusal, count) for refusal, count in self._seen.items() if count)
        found = Counted(repeated, self._omitted)
        self._since, self._seen, self._omitted = now, {}, 0
        return found


def _cut(text: str) -> str:
    return text if len(text) <= TARGET_LIMIT else f"{text[:TARGET_LIMIT]}…"
