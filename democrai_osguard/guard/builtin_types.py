"""What stands in types that are made in C: the way down from a frame, and their namespaces.

Such a type takes no attributes; `gc` knows the dictionary that its namespace is shown from. What is
put there is a descriptor whose methods are doors, and it is shown to nobody: properties stand for
it, see `sealed.namespaces`. Its class can be found, as any can, so it is put right with the others.
"""

from __future__ import annotations

import gc
import inspect
import types
from typing import TYPE_CHECKING, Any

from democrai_osguard.guard.vault import door

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import ModuleType


def show(sealed: Mapping[str, ModuleType]) -> None:
    """Show frames without those of the sealed part, and namespaces of types made in C as copies."""
    shown, watch = sealed["namespaces"], sealed["integrity"].watch_attributes
    back, space, state = map(door, (sealed["frames"].shown_back, shown.namespace, shown.state))
    shown.STATE.append(state)
    shown.SHOWN.extend([
        (types.FrameType, "f_back", lambda: property(back)),
        (type, "__dict__", lambda: property(space)),
        (object, "__getstate__", lambda: state),
    ])  # fmt: skip
    methods: list[dict[str, Any]] = [
        {"__get__": shown.got_back},
        {"__get__": shown.got_namespace, "__set__": shown.never_set},
        {"__get__": shown.bound_state, "__call__": shown.called_state},
    ]
    spaces = [gc.get_referents(owner.__dict__)[0] for owner, _, _ in shown.SHOWN]
    for (_, name, _), place, row in zip(shown.SHOWN, spaces, methods, strict=True):
        place[name] = _descriptor(name, row, watch)
    _forget_what_was_looked_up()
    _explain_to_inspect(space)


def _descriptor(name: str, methods: dict[str, Any], watch: Any) -> object:
    doors = {method: door(function) for method, function in methods.items()}
    kind = type(name, (), {"__slots__": (), **doors})
    watch(kind, *doors)
    return kind()


def _forget_what_was_looked_up() -> None:
    """Tell the interpreter that types have changed: it hears so when this is set, to nothing."""
    looked_up: Any = type.__dict__["__abstractmethods__"]
    looked_up.__set__(object, ())
    looked_up.__delete__(object)


def _explain_to_inspect(space: Any) -> None:
    """Let `inspect` take what stands for `__dict__` of types for what it was."""
    module: Any = inspect
    original = module._shadowed_dict  # noqa: SLF001 - there is no public name for it

    def _shadowed_dict(klass: type) -> Any:
        found = original(klass)
        return module._sentinel if getattr(found, "fget", None) is space else found  # noqa: SLF001 - as above

    module._shadowed_dict = _shadowed_dict  # noqa: SLF001 - as above
    if hasattr(module, "_get_dunder_dict_of_class"):  # from 3.12 on, the original
        module._get_dunder_dict_of_class = space  # noqa: SLF001 - as above
