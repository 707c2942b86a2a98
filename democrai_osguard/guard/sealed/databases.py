"""SQLite: a connection is opened in here, and asks before it attaches another file.

The interpreter reports the first file alone. Whoever opens a connection past this, by the C class
or by a class of one's own, is refused when the interpreter says that it is open.
"""

from __future__ import annotations

from _thread import get_ident
from gc import disable as stop_collecting
from gc import enable as start_collecting
from gc import isenabled as collecting
from types import MethodDescriptorType, WrapperDescriptorType
from typing import Any

from democrai_osguard.guard.sealed.answers import noted, refusal
from democrai_osguard.guard.sealed.core import State, current
from democrai_osguard.guard.sealed.events import event_database
from democrai_osguard.guard.sealed.imports import ORIGINALS
from democrai_osguard.guard.sealed.namespaces import space_of
from democrai_osguard.guard.sealed.opening import plainly

_ATTACH, _OK, _DENY = 24, 0, 1
OPENING: dict[int, object] = {}  # the connection that each thread opens in here
# The classes' own attributes, whatever a metaclass says.
_mro: Any = type.__dict__["__mro__"].__get__


def open_database(connection: Any, values: Any, named: Any) -> object:
    """Initialise a connection as its C class does; False where no guard is active."""
    if current() is None:
        return False
    values, named = tuple(values), dict(named)
    plainly((*values, *named.values()))
    begin, ask = _methods(connection)
    ident, collects = get_ident(), collecting()
    try:
        stop_collecting()  # no finalizer finds it open, and not asking yet
        OPENING[ident] = connection
        begin(connection, *values, **named)
        ask(connection, ORIGINALS["door"](_authorize))
    finally:
        OPENING.pop(ident, None)
        if collects:
            start_collecting()
    return True


def about_opened(state: State, connection: object) -> Warning | None:
    """Judge a connection that the interpreter says is open: only one that is opened in here."""
    if OPENING.pop(get_ident(), None) is connection:
        return None
    why = "it is opened past `sqlite3.connect`, and would not ask before it attaches another"
    return refusal(state, "sandbox_filesystem_denied", "read", "a database", why)


def _methods(connection: Any) -> tuple[Any, Any]:
    """Return how the C class of a connection opens it, and has it ask."""
    for kind in _mro(type(connection)):
        begin, ask = (space_of(kind).get(name) for name in ("__init__", "set_authorizer"))
        genuine = type(begin) is WrapperDescriptorType and type(ask) is MethodDescriptorType
        if genuine and begin.__objclass__ is ask.__objclass__ is kind:
            return begin, ask
    raise TypeError("a connection of SQLite is expected")


def _authorize(action: Any, name: Any, *_rest: Any) -> int:
    state = current() if action == _ATTACH else None
    if state is None:
        return _OK
    # Without a name it is one that is not known yet: a parameter, or what an expression says.
    return _OK if noted(event_database(state, name)) is None else _DENY
