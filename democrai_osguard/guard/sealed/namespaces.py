"""What everybody is shown of the types that are made in C: copies of their namespaces.

Such a type takes no attributes, and Python shows what it has through a read-only proxy. A proxy
that is compared or joined with an object hands the dictionary itself to that object's method, and
a type that is asked for its state hands it out as well. Who holds it changes methods that everybody
calls, this code among them. So nobody gets it: a copy says the same, since these never change.
"""

from __future__ import annotations

from functools import partial
from types import FrameType, MappingProxyType, NoneType
from typing import TYPE_CHECKING, Any

from democrai_osguard.guard.sealed.frames import shown_back

if TYPE_CHECKING:
    from collections.abc import Callable

# As they are, taken before anybody else is shown others.
space_of: Any = type.__dict__["__dict__"].__get__
_flags: Any = type.__dict__["__flags__"].__get__
_getstate: Any = object.__dict__["__getstate__"]
_bound: Any = _getstate.__get__
_copy: Any = MappingProxyType.copy
IMMUTABLE = 1 << 8  # Py_TPFLAGS_IMMUTABLETYPE: no class that is made in Python has it
_OF_TYPES = "attribute '__dict__' of 'type' objects is not writable"
# What is shown in the place of what really stands in a namespace: type, name, how it is made.
# Each time anew, since a property can be given other functions.
SHOWN: list[tuple[type, str, Callable[[], Any]]] = []
STATE: list[Any] = []  # the door to `state`


def namespace(kind: type) -> MappingProxyType[str, Any]:
    """Return a type's `__dict__` as everybody sees it."""
    space: MappingProxyType[str, Any] = space_of(kind)
    return _shown(kind, space) if _flags(kind) & IMMUTABLE else space


def _shown(kind: type, space: MappingProxyType[str, Any]) -> MappingProxyType[str, Any]:
    copy = _copy(space)
    for owner, name, make in SHOWN:
        if owner is kind:
            copy[name] = make()
    return MappingProxyType(copy)


def got_namespace(_descriptor: object, kind: type | None, _owner: object = None) -> Any:
    """Return a type's `__dict__`; where no type is asked, what stands for that attribute."""
    if kind is None:
        return namespace(type)["__dict__"]
    space = space_of(kind)  # as in `namespace`, without the call
    return _shown(kind, space) if _flags(kind) & IMMUTABLE else space


def got_back(_descriptor: object, frame: FrameType | None, _owner: object = None) -> Any:
    """Return what a frame stands on; where no frame is asked, what stands for that attribute."""
    return namespace(FrameType)["f_back"] if frame is None else shown_back(frame)


def never_set(*_args: object) -> None:
    """Refuse to replace a type's `__dict__`, as the original does."""
    raise AttributeError(_OF_TYPES)


def state(value: Any) -> Any:
    """Return what stands for `object.__getstate__`: that of a type is a copy of its namespace."""
    return _copy(namespace(value)) if isinstance(value, type) else _getstate(value)


def bound_state(_descriptor: object, value: Any, owner: type | None = None) -> Any:
    """Return `__getstate__` of an object, or of a class where there is no object.

    An object gets the original: by that the interpreter knows that nobody replaced it.
    """
    if value is None:  # to the original, None is no object
        return partial(STATE[0], None) if owner is NoneType else STATE[0]
    return partial(STATE[0], value) if isinstance(value, type) else _bound(value)


def called_state(_descriptor: object, value: Any) -> Any:
    """Return the state of an object to whoever holds the descriptor itself, and calls it."""
    return state(value)
