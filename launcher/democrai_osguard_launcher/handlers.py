"""All calls that the broker answers, by name."""

from __future__ import annotations

from .brokered import HANDLERS as COMPLETED
from .seccomp import LOOKING_CALLS
from .starting import START_HANDLERS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .broker import Broker
    from .brokered import Descriptor
    from .caller import Call


def _looker(name: str) -> Callable[[Broker, Call], int]:
    def look(broker: Broker, call: Call) -> int:
        from .looking import LOOK_HANDLERS  # noqa: PLC0415 - only for `--stat-as-read`

        return LOOK_HANDLERS[name](broker, call)

    return look


HANDLERS: Mapping[str, Callable[[Broker, Call], int | Descriptor | None]] = {
    **COMPLETED,
    **START_HANDLERS,
    **{name: _looker(name) for name in LOOKING_CALLS},
}
