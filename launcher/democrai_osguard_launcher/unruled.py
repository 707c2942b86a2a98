"""What a command wants of sockets that no rule can allow, with the reason: for explaining only."""

from __future__ import annotations

from . import addresses
from .held_socket import CONNECTING, HeldSocket

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .acts import Act
    from .caller import Call

LISTENING = "to listen on a network is no operation that a rule could allow"
ABSTRACT = "an abstract unix socket has no path that a rule could name"
OWN = "no rule opens a unix socket that is made in the run itself"
_ABI_UNIX = 9  # from here on Landlock tells unix sockets apart, and all runs have them
_FAMILY = 2  # bytes


class Unruled:
    """Knows which sockets a run has made."""

    def __init__(self, abi: int) -> None:
        self._sees_unix = abi >= _ABI_UNIX
        self._made: set[str] = set()

    def listens(self, name: str, call: Call) -> bool:
        """Tell whether the call gives a stream of a network an address of its own."""
        if name != "bind" or _family(call) not in {addresses.AF_INET, addresses.AF_INET6}:
            return False
        try:
            held = HeldSocket(call, call.integer(0))
        except OSError:
            return False
        held.close()
        return held.type in CONNECTING

    def unix(self, name: str, call: Call, done: tuple[Act, ...]) -> str | None:
        """Return why a unix socket that works now has no rule to work again."""
        if self._sees_unix or name not in {"bind", "connect"}:
            return None
        if name == "bind":
            self._made.update(act.target for act in done)
        if any(act.target in self._made for act in done):
            return OWN
        return ABSTRACT if _is_abstract(call) else None


def _is_abstract(call: Call) -> bool:
    size = call.integer(2)
    if _family(call) != addresses.AF_UNIX or size <= _FAMILY:
        return False
    return call.memory(call.arguments[1] + _FAMILY, 1) == b"\0"


def _family(call: Call) -> int:
    if call.integer(2) < _FAMILY:
        return -1
    try:
        return int.from_bytes(call.memory(call.arguments[1], _FAMILY), "little")
    except OSError:
        return -1
