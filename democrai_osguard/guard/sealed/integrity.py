"""Whether the classes that decide are still as they were loaded.

Classes can be found from `object` and changed by anybody in this process, also private ones. So
their namespaces are compared with a copy before a decision counts, and a difference closes it.
"""

from __future__ import annotations

from ipaddress import IPv4Network, IPv6Network
from itertools import repeat
from operator import is_
from sys import modules
from types import CellType, FunctionType, ModuleType
from typing import Any

from democrai_osguard.guard.sealed.namespaces import space_of

# A namespace or mapping, its names, and what each stood for; a list or set, and what was in it.
_SNAPSHOTS: list[tuple[Any, tuple[Any, ...], tuple[Any, ...]]] = []
_CONTAINERS: list[tuple[Any, tuple[Any, ...]]] = []
_CELLS: list[tuple[CellType, Any]] = []  # a variable that a function shares, and its value
# A class, where it looks things up, and what it was made of.
_ANCESTRIES: list[tuple[type, tuple[type, ...], tuple[type, ...]]] = []
_LOADED: dict[str, ModuleType] = {}  # public modules by name
_MAPPINGS: list[tuple[dict[str, Any], dict[str, Any]]] = []
_Rows = list[tuple[Any, tuple[str, ...], tuple[Any, ...]]]
_MAKING: _Rows = []  # public modules and classes that take part in making guards
_PUBLIC: _Rows = []  # those that only act
_ATTRIBUTES: _Rows = []  # objects that these ask, and what they have under some names
_NAME = "democrai_osguard"
_MAKERS = frozenset(
    f"{_NAME}.{name}"
    for name in (
        "access",
        "directories",
        "errors",
        "guard",
        "guard.access_variable",
        "guard.contexts",
        "guard.installation",
        "manifest",
        "manifest_shape",
        "runtime",
        "runtime.contexts",
        "runtime.interpreter",
        "runtime.mcp",
        "runtime.package_index",
        "targets",
    )
)
_BELOW = (f"{_NAME}.targets.",)
_OURS = (f"{_NAME}.guard", *_MAKERS, *_BELOW)
_SEALED = f"{_NAME}.guard.sealed"  # which is private
_seen = [0]  # how many modules there were when new ones were looked for
# Public modules and classes that answer, their namespaces, and all that was in them.
_ANSWERING: list[tuple[Any, Any, tuple[str, ...], tuple[Any, ...]]] = []
_ANSWERING_ANCESTRIES: list[tuple[type, tuple[type, ...], tuple[type, ...]]] = []
_BUILTINS: list[tuple[dict[str, Any], tuple[str, ...], tuple[Any, ...]]] = []
_MISSING = object()
_LATE = frozenset({"__annotations__", "__annotations_cache__", "__annotate__", "__doc__"})
_WRAPPED = ("__func__", "__wrapped__", "fget", "func")  # where others keep a function
# Taken from `type`: a metaclass could answer in its place.
_ancestry: Any = type.__dict__["__mro__"].__get__
_bases: Any = type.__dict__["__bases__"]
_MADE_IN_PYTHON = 1 << 9  # Py_TPFLAGS_HEAPTYPE: such a class can be changed


def take(private: list[ModuleType]) -> None:
    """Remember these modules, the classes in them, and what their functions read."""
    for known in (_SNAPSHOTS, _CONTAINERS, _ANCESTRIES, _CELLS):
        known.clear()
    _fill_caches()
    for module in private:
        _remember_globals(vars(module))
    for found in _classes_in(private):
        _remember(space_of(found))
        _ANCESTRIES.append((found, _ancestry(found), _bases.__get__(found)))
    public = {id(getattr(module, "__dict__", None)) for module in list(modules.values())}
    for function in _functions_in([row[2] for row in _SNAPSHOTS]):
        if id(function.__globals__) not in public:  # others are called while loading only
            _remember_function(function)


def _remember_globals(space: dict[str, Any]) -> None:
    _keep_warnings_out(space)
    _remember(space)


def _keep_warnings_out(space: dict[str, Any]) -> None:
    """Let the interpreter put no warnings down in a namespace, which would change it.

    It does so in whatever code it finds itself, and a collection may bring a warning at any moment.
    Where None stands, a warning is shown and not put down.
    """
    space["__warningregistry__"] = None


def _remember_function(function: FunctionType) -> None:
    named = function.__kwdefaults__
    if not _is_remembered(function.__globals__):
        _remember_globals(function.__globals__)
    if named is not None and not _is_remembered(named):
        _remember(named)
    _CELLS.extend((cell, cell.cell_contents) for cell in function.__closure__ or ())


def _is_remembered(mapping: Any) -> bool:
    return any(row[0] is mapping for row in _SNAPSHOTS)


def _classes_in(private: list[ModuleType]) -> list[type]:
    """Return the classes in these modules, public ones too, and all that they inherit from."""
    named = (each for module in private for each in vars(module).values() if isinstance(each, type))
    every = dict.fromkeys(above for each in named for above in _ancestry(each))
    return [each for each in every if each.__flags__ & _MADE_IN_PYTHON]


def _functions_in(rows: list[tuple[Any, ...]]) -> list[FunctionType]:
    """Return the functions among these values, also wrapped ones and those that they close over."""
    waiting = [value for row in rows for value in row]
    found: dict[FunctionType, None] = {}
    while waiting:
        value = waiting.pop()
        inner = (getattr(value, name, None) for name in _WRAPPED)
        waiting += [each for each in inner if isinstance(each, FunctionType) and each not in found]
        if isinstance(value, FunctionType) and value not in found:
            found[value] = None
            waiting += [cell.cell_contents for cell in value.__closure__ or ()]
    return list(found)


def _fill_caches() -> None:
    """Fill the class-level caches of `ipaddress` now, so that they never change again."""
    for network, bits in ((IPv4Network, 32), (IPv6Network, 128)):
        for length in range(bits + 1):
            network((0, length))
            network((0, str(length)))


def _remember(namespace: Any) -> None:
    now = namespace.copy()  # names and values of one moment
    _SNAPSHOTS.append((namespace, tuple(now), tuple(now.values())))
    for value in now.values():
        if type(value) is dict and not _is_remembered(value):
            _SNAPSHOTS.append((value, tuple(value), tuple(value.values())))
        elif type(value) in {list, set}:
            _CONTAINERS.append((value, tuple(value)))


def _same(space: Any, names: tuple[str, ...], values: tuple[Any, ...]) -> bool:
    # By identity, never by ==, which a replacement could answer itself.
    return all(map(is_, map(space.get, names), values))


def watch_over() -> None:
    """Remember public modules that are new, and their classes, for `repair`."""
    count = len(modules)
    if count == _seen[0]:
        return
    for name, module in modules.copy().items():  # other threads load more meanwhile
        if type(name) is str and name not in _LOADED and _is_ours(name):
            if _is_loading(module):
                count = -1  # it has more names soon: the next guard looks again
                continue
            _LOADED[name] = module
            _keep_warnings_out(vars(module))
            inside = (value for value in list(vars(module).values()) if isinstance(value, type))
            own = [each for each in inside if each.__module__ == name]
            rows = _MAKING if name in _MAKERS or name.startswith(_BELOW) else _PUBLIC
            rows.extend(_whole(each) for each in (module, *own))
    _seen[0] = count


def _is_loading(module: ModuleType) -> bool:
    spec = getattr(module, "__spec__", None)
    return bool(getattr(spec, "_initializing", False))


def _is_ours(name: str) -> bool:
    return name.startswith(_OURS) and not name.startswith(_SEALED)


def _space(owner: Any) -> Any:
    return space_of(owner) if isinstance(owner, type) else vars(owner)


def _whole(owner: Any) -> tuple[Any, tuple[str, ...], tuple[Any, ...]]:
    space = _space(owner).copy()  # names and values of one moment
    return owner, tuple(space), tuple(space.values())


def watch_attributes(owner: Any, *names: str) -> None:
    """Remember what an object has under some names, which `repair` restores."""
    _ATTRIBUTES.append((owner, names, tuple(_space(owner)[name] for name in names)))


def watch_answers(modules: list[ModuleType], builtins: dict[str, Any]) -> None:
    """Remember the public code that answers about approvals, and what it calls by bare names."""
    owners: list[Any] = []
    for module in modules:
        _keep_warnings_out(vars(module))
        inside = (value for value in list(vars(module).values()) if isinstance(value, type))
        owners += [module, *(each for each in inside if each.__module__ == module.__name__)]
    _ANSWERING[:] = [(owner, _space(owner), *_whole(owner)[1:]) for owner in owners]
    classes = (owner for owner in owners if isinstance(owner, type))
    _ANSWERING_ANCESTRIES[:] = [(each, _ancestry(each), _bases.__get__(each)) for each in classes]
    now = builtins.copy()
    _BUILTINS[:] = [(builtins, tuple(now), tuple(now.values()))]


def answers_intact() -> bool:
    """Tell whether the code that answers is as it was when it was registered."""
    for _, space, names, values in _ANSWERING:
        # By name and by value: under each other's names, all would still be there and in order.
        kept = len(space) == len(names) and all(map(is_, space.values(), values))
        if not (kept and all(map(is_, space, names))) and not _put_back(space, names, values):
            return False
    if not _same_ancestries(_ANSWERING_ANCESTRIES):
        return False
    # Others may add to these, but nothing that would itself say what it is equal to.
    return all(_same(*row) and _has_plain_names(row[0]) for row in _BUILTINS)


def _put_back(space: Any, names: tuple[str, ...], values: tuple[Any, ...]) -> bool:
    """Tell whether a namespace has these names for these values and no others, in any order."""
    return len(space) == len(names) and _has_plain_names(space) and _same(space, names, values)


def _has_plain_names(space: Any) -> bool:
    return all(map(is_, map(type, space), repeat(str)))


def restore_answers() -> None:
    """Put back what guarded code changed in the code that answers."""
    if answers_intact():
        return
    for space, names, values in _BUILTINS:
        space.update(zip(names, values, strict=True))
    for owner, space, names, values in _ANSWERING:
        _put_right(owner, space, dict(zip(names, values, strict=True)))
    for row in _ANSWERING_ANCESTRIES:
        if not _same_ancestries([row]):
            _bases.__set__(row[0], row[2])


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


def repair() -> None:
    """Put back what guarded code replaced among the guard's own names."""
    modules.update(_LOADED)  # whoever imports one of them again gets the one that acts
    repair_making()
    _repair(_PUBLIC)


def repair_making() -> None:
    """Put back what takes part in making a guard."""
    _repair(_MAKING)
    for row in _ATTRIBUTES:
        if not _same(_space(row[0]), row[1], row[2]):
            _set_names(*row)
    for mapping, copy in _MAPPINGS:
        if len(mapping) != len(copy) or not _same(mapping, tuple(copy), tuple(copy.values())):
            mapping.clear()
            mapping.update(copy)


def _repair(rows: _Rows) -> None:
    for number, (owner, names, values) in enumerate(rows):
        space = _space(owner)
        # By name and by value, in order: nothing is looked up where nothing has changed.
        kept = len(space) == len(names) and all(map(is_, space.values(), values))
        if not kept or not all(map(is_, space, names)):
            _set_names(owner, names, values)
            _drop_names(owner, names)
            rows[number] = _whole(owner)


def _drop_names(owner: Any, names: tuple[str, ...]) -> None:
    for name in [name for name in list(_space(owner)) if name not in names]:
        if not _may_be_new(owner, name):
            _setter(owner).__delattr__(owner, name)


def _set_names(owner: Any, names: tuple[str, ...], values: tuple[Any, ...]) -> None:
    for name, value in zip(names, values, strict=True):
        if _space(owner).get(name, _MISSING) is not value:
            _setter(owner).__setattr__(owner, name, value)


def _setter(owner: Any) -> Any:
    return type if isinstance(owner, type) else object


def _may_be_new(owner: Any, name: str) -> bool:
    """Tell whether the interpreter added a name: a module to its package, or a look at a class."""
    if isinstance(owner, type):
        return name in _LATE
    return vars(owner).get(name) is modules.get(f"{vars(owner)['__name__']}.{name}", _MISSING)


def intact() -> bool:
    """Tell whether nothing has been replaced since."""
    # By identity and in order: an object that was put in could call itself equal.
    for space, names, values in _SNAPSHOTS:
        if not _alike(space, names) or not all(map(is_, space.values(), values)):
            return False
    return (
        _same_ancestries(_ANCESTRIES)
        and all(_alike(value, before) for value, before in _CONTAINERS)
        and all(cell.cell_contents is before for cell, before in _CELLS)
    )


def _alike(items: Any, before: tuple[Any, ...]) -> bool:
    return len(items) == len(before) and all(map(is_, items, before))


def _same_ancestries(known: list[tuple[type, tuple[type, ...], tuple[type, ...]]]) -> bool:
    for each, before, _ in known:
        now = _ancestry(each)
        if now is not before and not _alike(now, before):
            return False
    return True
