"""Putting wrappers in the place of originals, wherever a module or class holds one.

Libraries that are not loaded yet get their rows when they arrive. Other threads load modules
meanwhile, so namespaces are walked as copies: `copy` makes one in a single step. A list of `items`
makes a tuple for each, and on 3.11 any of these can start a collection, which lets others in.
"""

from __future__ import annotations

import functools
import importlib.abc
import importlib.util
import sys
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from importlib.machinery import ModuleSpec

    from democrai_osguard.guard.patches.rows import Replacement


def replace_everywhere(pairs: Sequence[tuple[Any, Any]]) -> None:
    """Replace each original by its wrapper in all modules, classes and default arguments."""
    table = {id(original): wrapper for original, wrapper in pairs}
    for module in list(sys.modules.values()):
        if isinstance(module, ModuleType):
            _replace_in(module.__dict__, table)
    _replace_in_sets(table)


def _replace_in(space: dict[str, Any], table: dict[int, Any]) -> None:
    for name, value in space.copy().items():
        if id(value) in table:
            space[name] = table[id(value)]
        elif type(value) is FunctionType:
            _replace_defaults(value, table)
        elif isinstance(value, type) and value.__module__ == space.get("__name__"):
            _replace_in_class(value, table)


def _replace_in_class(owner: type, table: dict[int, Any]) -> None:
    for name, value in vars(owner).copy().items():
        if id(value) in table:
            setattr(owner, name, staticmethod(table[id(value)]))
        elif type(value) is FunctionType:
            _replace_defaults(value, table)


def _replace_defaults(function: FunctionType, table: dict[int, Any]) -> None:
    defaults = function.__defaults__
    if defaults and any(id(value) in table for value in defaults):
        function.__defaults__ = tuple(table.get(id(value), value) for value in defaults)
    named = function.__kwdefaults__
    if named:
        for key, value in named.copy().items():
            named[key] = table.get(id(value), value)


def _replace_in_sets(table: dict[int, Any]) -> None:
    """Tell `os` that a wrapper supports what its original does, and let it keep no original."""
    os_module = sys.modules["os"]
    for name in (
        "supports_dir_fd",
        "supports_fd",
        "supports_follow_symlinks",
        "supports_effective_ids",
    ):
        known = getattr(os_module, name)
        replaced = {function for function in known.copy() if id(function) in table}
        known |= {table[id(function)] for function in replaced}
        known -= replaced


def apply(rows: Iterable[Replacement], pairs: Iterable[tuple[Any, Any]] = ()) -> None:
    """Replace what is loaded, in one pass over all modules, and wait for the rest."""
    waiting: dict[str, list[Replacement]] = {}
    found = list(pairs)
    for row in rows:
        module = row.owner.partition(":")[0]
        if module in sys.modules:
            found += replace(row)
        else:
            waiting.setdefault(module, []).append(row)
    replace_everywhere(found)
    if waiting:
        sys.meta_path.insert(0, LatePatches(waiting))


def replace(row: Replacement) -> list[tuple[Any, Any]]:
    """Replace one attribute, where the library has it; return what is to be replaced elsewhere."""
    module_name, _, class_name = row.owner.partition(":")
    owner: Any = sys.modules[module_name]
    if class_name:
        owner = getattr(owner, class_name, None)
    original = getattr(owner, row.name, None)
    if original is None or hasattr(original, "democrai_osguard"):
        return []
    wrapper = row.make(original)
    if wrapper is original:
        return []
    _dress(wrapper, original)
    setattr(owner, row.name, wrapper)
    return [(original, wrapper)] if row.everywhere else []


def _dress(wrapper: Any, original: Any) -> None:
    names = ("__module__", "__name__", "__qualname__", "__doc__")
    functools.update_wrapper(wrapper, original, assigned=names, updated=())
    wrapper.democrai_osguard = True
    # Nobody finds the original by asking what was wrapped.
    del wrapper.__wrapped__


def dress(wrapper: Any, original: Any) -> Any:
    """Give a wrapper the name and the text of its original, and return it."""
    _dress(wrapper, original)
    text = getattr(original, "__text_signature__", None)
    if text and not isinstance(wrapper, type):
        wrapper.__text_signature__ = text
    return wrapper


class LatePatches(importlib.abc.MetaPathFinder):
    """Finds nothing itself: it notices libraries that arrive, and patches them when they have."""

    def __init__(self, waiting: dict[str, list[Replacement]]) -> None:
        self._waiting = waiting

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec that others find, with a loader that patches after loading."""
        if fullname not in self._waiting:
            return None
        rows = self._waiting.pop(fullname)
        spec = self._from_others(fullname, path, target)
        if spec is None or spec.loader is None:
            self._waiting[fullname] = rows
            return spec
        spec.loader = PatchingLoader(spec.loader, rows)
        return spec

    def _from_others(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None
    ) -> ModuleSpec | None:
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            if finder is not self and find is not None:
                spec: ModuleSpec | None = find(fullname, path, target)
                if spec is not None:
                    return spec
        return None


class PatchingLoader(importlib.abc.Loader):
    """Another loader, followed by the rows that wait for its module."""

    def __init__(self, inner: Any, rows: list[Replacement]) -> None:
        self._inner = inner
        self._rows = rows

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Return what the loader makes."""
        module: ModuleType | None = self._inner.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Load the module as its loader does, then replace what the rows name."""
        if module.__spec__ is not None:
            module.__spec__.loader = self._inner
        module.__loader__ = self._inner
        self._inner.exec_module(module)
        for row in self._rows:
            replace(row)  # it just arrived: nobody can have captured the original yet
