"""Private copies of modules, and doors into them that cannot be taken apart.

A module loaded here is in no table that guarded code can read, and has builtins of its own. A
door is a C object that calls a private function: it has no `__globals__`, `__closure__` or
`__wrapped__`, and its only reference to the function shows up in `gc`, which the hook refuses.
"""

from __future__ import annotations

import builtins
import functools
import importlib.util
import sys
import types
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_PACKAGE = "democrai_osguard"
# Pure Python that decisions run through: a private copy keeps changed classes out of them.
_PRIVATE = frozenset({"ipaddress", "enum", "dataclasses", "functools"})

_lru_type: Any = functools._lru_cache_wrapper  # noqa: SLF001 - there is no public name for it


def door(function: Callable[..., object]) -> Any:
    """Return an opaque callable that calls the function and keeps nothing."""
    return _lru_type(function, 0, False, tuple)  # noqa: FBT003 - no size, not typed: its C type takes no names


class Vault:
    """A set of private modules that import each other and share nothing with the public ones."""

    def __init__(self) -> None:
        self.modules: dict[str, types.ModuleType] = {}
        self._builtins = dict(vars(builtins))
        self._builtins["__import__"] = self._import

    def load(self, name: str) -> types.ModuleType:
        """Return the private copy of a module, loaded with its parents at the first call."""
        module = self.modules.get(name)
        return module if module is not None else self._load(name)

    def hide(self) -> None:
        """Take the private modules out of the interpreter's table, once all are loaded."""
        for module in self.modules.values():
            sys.modules.pop(module.__name__, None)

    def _load(self, name: str) -> types.ModuleType:
        parent = name.rpartition(".")[0]
        if parent:
            self.load(parent)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            raise ModuleNotFoundError(name)
        # A name of its own: dataclasses and enum would otherwise look up the public module.
        module = types.ModuleType(f"sealed:{name}")
        # Shown only while loading: dataclasses looks up the module of the class that it makes.
        self.modules[name] = sys.modules[module.__name__] = module
        vars(module)["__builtins__"] = self._builtins
        if spec.submodule_search_locations is not None:
            return module  # a package's __init__ only gathers names; nothing here needs it
        code = spec.loader.get_code(name)  # type: ignore[attr-defined] # each of ours has source
        exec(code, vars(module))  # noqa: S102 - loading a module is executing it
        return module

    def _import(
        self,
        name: str,
        globals: Mapping[str, object] | None = None,  # noqa: A002 - the builtin's own names
        locals: Mapping[str, object] | None = None,  # noqa: A002 - the builtin's own names
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> Any:
        if name in _PRIVATE:
            return self.load(name)
        if name.partition(".")[0] != _PACKAGE:
            return builtins.__import__(name, globals, locals, fromlist or (), level)
        module = self.load(name)
        for item in fromlist or ():
            if item not in vars(module):
                setattr(module, item, self.load(f"{name}.{item}"))
        return module
