"""Imports: the statement's function, importlib's, and stand-ins for sensitive modules."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from democrai_osguard.guard.outcome import Callers, as_error
from democrai_osguard.guard.patches.rows import Replacement
from democrai_osguard.refusals import ModuleHidden, ModuleUnavailable, Refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

SENSITIVE = ("ctypes", "_ctypes", "cffi", "_cffi_backend")
_BEHIND_STAND_INS = (*SENSITIVE, "_tkinter")
_FINDER = "_frozen_importlib_external:PathFinder"
_doors: dict[str, Any] = {}


class StandIn(ModuleType):
    """A sensitive module that was loaded before: its contents are for those who may have them."""

    def __getattribute__(self, name: str) -> Any:
        root = ModuleType.__getattribute__(self, "__name__")
        if name in {"__class__", "__name__", "__spec__", "__path__", "__loader__"}:
            return ModuleType.__getattribute__(self, name)
        answer = _doors["attribute"](root, name)
        if type(answer) is Warning:
            raise _refusal(answer, depth=3) from None
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def __setattr__(self, name: str, value: object) -> None:
        setattr(_real(self), name, value)


def _real(module: ModuleType) -> Any:
    answer = _doors["attribute"](ModuleType.__getattribute__(module, "__name__"), "__dict__")
    if isinstance(answer, BaseException):
        raise as_error(answer) from None
    return _Namespace(answer)


class _Namespace:
    """Attributes as items of a dict."""

    def __init__(self, space: dict[str, object]) -> None:
        object.__setattr__(self, "_space", space)

    def __setattr__(self, name: str, value: object) -> None:
        object.__getattribute__(self, "_space")[name] = value


def stand_in(module: ModuleType) -> StandIn:
    """Return what stands for a sensitive module in every table and namespace."""
    proxy = StandIn(module.__name__)
    for name in ("__spec__", "__path__", "__loader__"):
        if name in vars(module):
            ModuleType.__setattr__(proxy, name, vars(module)[name])
    return proxy


def _import(doors: Mapping[str, Any]) -> Callable[[Any], Any]:
    watched = doors["watched"]

    def make(original: Any) -> Any:
        def __import__(  # noqa: A001, N807 - the builtin's own name
            name: Any,
            globals: Any = None,  # noqa: A002 - the builtin's own names
            locals: Any = None,  # noqa: A002 - the builtin's own names
            fromlist: Any = (),
            level: Any = 0,
        ) -> Any:
            # A name that hides behind methods of its own is met again by the hook.
            if level == 0 and name.partition(".")[0] in watched:
                answer = doors["importing"](name)
                if answer is not None:
                    # Native code asks with an empty list, and takes the module from the table.
                    if fromlist.__class__ is list:
                        raise as_error(answer) from None
                    return for_library(answer, depth=3)
            try:
                return original(name, globals, locals, fromlist, level)
            except ModuleNotFoundError as error:
                refused = _hidden(error, depth=3)
                if refused is None:
                    raise
                raise refused from None

        return __import__

    return make


def _import_module(doors: Mapping[str, Any]) -> Callable[[Any], Any]:
    def make(original: Any) -> Any:
        def import_module(name: str, package: str | None = None) -> Any:
            # A relative name begins with its package.
            answer = doors["importing"](package if name.startswith(".") else name)
            if answer is not None:
                return for_library(answer, depth=3)
            try:
                return original(name, package)
            except ModuleNotFoundError as error:
                refused = _hidden(error, depth=3)
                if refused is None:
                    raise
                raise refused from None

        return import_module

    return make


def _finder_of_folder(doors: Mapping[str, Any]) -> Callable[[Any], Any]:
    """`PathFinder`'s memory of folders, where nobody asks a second time about what is missing."""
    token, watching = doors["token"], doors["watching"]

    def make(original: Any) -> Any:
        look = original.__self__._path_hooks  # noqa: SLF001 - there is no public name for it

        def _path_importer_cache(path: Any) -> Any:
            # A folder that a guard hides is there for others, so only finding it is remembered.
            new = path and path not in sys.path_importer_cache
            if new and (token(None) is not None or watching()) and look(path) is None:
                return None
            return original(path)

        return _path_importer_cache

    return make


def _create(doors: Mapping[str, Any], verb: str) -> Callable[[Any], Any]:
    def make(_original: Any) -> Any:
        def create(spec: Any, _file: Any = None) -> Any:
            answer = doors["create_module"](verb, spec.name, getattr(spec, "origin", None), spec)
            if isinstance(answer, BaseException):
                raise as_error(answer) from None
            return answer()

        return create

    return make


def for_library(answer: Warning, *, depth: int) -> ModuleType:
    """Return a stand-in to a library that insists on the module; refuse it to everybody else.

    The stand-in hands out nothing, so it does not matter who passes for a library.
    """
    root = answer.args[4]
    if root not in SENSITIVE or not Callers.is_library(depth):
        raise _refusal(answer, depth=depth + 1) from None
    known = sys.modules.get(root)
    return known if isinstance(known, StandIn) else StandIn(root)


def _refusal(answer: Warning, *, depth: int) -> BaseException:
    """Return the refusal as its reader expects it: a library's import simply fails."""
    error = as_error(answer)
    if Callers.is_library(depth):
        return ModuleUnavailable(str(error), name=answer.args[4])
    return error


def _hidden(error: ModuleNotFoundError, *, depth: int) -> BaseException | None:
    """Return the refusal of a module that is installed and may not be read; None for any other."""
    answer = None if isinstance(error, ModuleHidden) else _doors["hidden_module"](error.name)
    refused: Any = answer if answer is None else as_error(answer)
    if not isinstance(refused, Refusal):
        return refused  # type: ignore[no-any-return] # None, or a failure to find out
    refused.hint = f"Load {error.name!r} before the guard is entered. {refused.hint}"
    if not Callers.is_library(depth):
        return refused
    found = ModuleHidden(str(refused), name=error.name)
    vars(found).update(vars(refused))
    return found


def import_patches(doors: Mapping[str, Any]) -> tuple[Replacement, ...]:
    """Return the rows of this area."""
    _doors.update(doors)
    return (
        Replacement("builtins", "__import__", _import(doors)),
        Replacement("_imp", "create_builtin", _create(doors, "create_builtin"), everywhere=True),
        Replacement("_imp", "create_dynamic", _create(doors, "create_dynamic"), everywhere=True),
        Replacement("importlib", "__import__", _import(doors), everywhere=True),
        Replacement("importlib", "import_module", _import_module(doors), everywhere=True),
        Replacement(_FINDER, "_path_importer_cache", _finder_of_folder(doors)),
    )


def replace_sensitive(modules: dict[str, Any]) -> None:
    """Put stand-ins in the place of sensitive modules that are loaded already."""
    for name in _BEHIND_STAND_INS:
        module = sys.modules.get(name)
        if module is None or isinstance(module, StandIn):
            continue
        modules[name] = module
        proxy = stand_in(module)
        sys.modules[name] = proxy
        for holder in list(sys.modules.values()):
            space = getattr(holder, "__dict__", None)
            if isinstance(space, dict) and space.get(name) is module:
                space[name] = proxy
