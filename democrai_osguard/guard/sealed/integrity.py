"""Whether the classes that decide are still as they were loaded.

Classes can be found from `object` and changed by anybody in this process, also private ones. So
their namespaces are compared with a copy before a decision counts, and a difference closes it.
"""

from __future__ import annotations

from ipaddress import IPv4Network, IPv6Network
from operator import is_
from sys import modules
from types import FunctionType, ModuleType
from typing import Any

# A namespace, the names in it, and what each stood for.
_SNAPSHOTS: list[tuple[Any, tuple[str, ...], tuple[Any, ...]]] = []
_CONTAINERS: list[tuple[Any, Any]] = []
_LOADED: dict[str, ModuleType] = {}  # public modules by name
_MAPPINGS: list[tuple[dict[str, Any], dict[str, Any]]] = []
_PUBLIC: list[tuple[Any, tuple[str, ...], tuple[Any, ...]]] = []
# Public modules and classes that answer, their namespaces, and all that was in them.
_ANSWERING: list[tuple[Any, Any, tuple[str, ...], tuple[Any, ...]]] = []
_BUILTINS: list[tuple[dict[str, Any], tuple[str, ...], tuple[Any, ...]]] = []
_MISSING = object()


def take(modules: list[ModuleType]) -> None:
    """Remember the namespaces of these modules and of the classes in them."""
    _SNAPSHOTS.clear()
    _CONTAINERS.clear()
    _fill_caches()
    for module in modules:
        names = vars(module)
        _remember(names)
        for value in list(names.values()):
            if isinstance(value, type) and str(value.__module__).startswith("sealed:"):
                _remember(vars(value))
    if modules:
        _remember(vars(modules[0])["__builtins__"])


def _fill_caches() -> None:
    """Fill the class-level caches of `ipaddress` now, so that they never change again."""
    for network, bits in ((IPv4Network, 32), (IPv6Network, 128)):
        for length in range(bits + 1):
            network((0, length))
            network((0, str(length)))


def _remember(namespace: Any) -> None:
    names = dict(namespace)
    _SNAPSHOTS.append((namespace, tuple(names), tuple(names.values())))
    inside = [value for value in names.values() if type(value) in {dict, list, set}]
    _CONTAINERS.extend((value, value.copy()) for value in inside)


def _same(space: Any, names: tuple[str, ...], values: tuple[Any, ...]) -> bool:
    # By identity, never by ==, which a replacement could answer itself.
    return all(map(is_, map(space.get, names), values))


def watch_over(own: list[ModuleType]) -> None:
    """Remember the names in public modules, and in their classes, that `repair` restores."""
    for module in own:
        _LOADED[module.__name__] = module
        _PUBLIC.append((module, *_functions(module)))
        classes = (value for value in vars(module).values() if isinstance(value, type))
        _PUBLIC.extend(
            (value, *_functions(value)) for value in classes if value.__module__ == module.__name__
        )


def watch_answers(modules: list[ModuleType], builtins: dict[str, Any]) -> None:
    """Remember the public code that answers about approvals, and what it calls by bare names."""
    owners: list[Any] = []
    for module in modules:
        inside = (value for value in vars(module).values() if isinstance(value, type))
        owners += [module, *(each for each in inside if each.__module__ == module.__name__)]
    _ANSWERING[:] = [
        (owner, vars(owner), tuple(vars(owner)), tuple(vars(owner).values())) for owner in owners
    ]
    _BUILTINS[:] = [(builtins, tuple(builtins), tuple(builtins.values()))]


def answers_intact() -> bool:
    """Tell whether the code that answers is as it was when it was registered."""
    for _, space, _, values in _ANSWERING:
        if len(space) != len(values) or not all(map(is_, space.values(), values)):
            return False
    return all(_same(*row) for row in _BUILTINS)  # others may add to these


def restore_answers() -> None:
    """Put back what guarded code changed in the code that answers."""
    if answers_intact():
        return
    for space, names, values in _BUILTINS:
        space.update(zip(names, values, strict=True))
    for owner, space, names, values in _ANSWERING:
        _put_right(owner, space, dict(zip(names, values, strict=True)))


def _put_right(owner: Any, space: Any, before: dict[str, Any]) -> None:
    kind = type if isinstance(owner, type) else ModuleType
    for name in [name for name in list(space) if name not in before]:
        kind.__delattr__(owner, name)
    for name, value in before.items():
        if space.get(name, _MISSING) is not value:
            kind.__setattr__(owner, name, value)


def watch_mapping(mapping: dict[str, Any]) -> None:
    """Remember a public mapping that `repair` restores."""
    _MAPPINGS.append((mapping, dict(mapping)))


def _functions(owner: Any) -> tuple[tuple[str, ...], tuple[Any, ...]]:
    kinds = (FunctionType, type, classmethod, property, staticmethod, ModuleType, dict)
    names = {name: value for name, value in vars(owner).items() if isinstance(value, kinds)}
    return tuple(names), tuple(names.values())


def repair() -> bool:
    """Put back what guarded code replaced among the guard's own names; tell whether it had to."""
    modules.update(_LOADED)  # whoever imports one of them again gets the one that acts
    changed = [row for row in _PUBLIC if not _same(vars(row[0]), row[1], row[2])]
    for owner, names, values in changed:
        for name, value in zip(names, values, strict=True):
            if vars(owner).get(name) is not value:
                setattr(owner, name, value)
    for mapping, copy in _MAPPINGS:
        if len(mapping) != len(copy) or not _same(mapping, tuple(copy), tuple(copy.values())):
            mapping.clear()
            mapping.update(copy)
    return bool(changed)


def intact() -> bool:
    """Tell whether nothing has been replaced since."""
    for namespace, names, values in _SNAPSHOTS:
        if len(namespace) != len(names) or not _same(namespace, names, values):
            return False
    return all(value == copy for value, copy in _CONTAINERS)
