"""Putting the guard together: private copies, doors, wrappers, and the hook beneath them."""

from __future__ import annotations

import _imp
import contextlib
import functools
import genericpath
import importlib
import logging  # noqa: F401 - refusals may need it where nothing can be loaded any more
import os
import pathlib
import sys
import types
from _thread import get_ident
from typing import TYPE_CHECKING, Any

from democrai_osguard.directories import own_places
from democrai_osguard.guard import (
    access_variable,
    builtin_types,
    contexts,
    patching,
    replacing,
    runtime_paths,
    wrappers,
)
from democrai_osguard.guard.outcome import Callers, as_error
from democrai_osguard.guard.vault import Vault, door

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from types import ModuleType

_SEALED = "democrai_osguard.guard.sealed"
_MODULES = (
    "frames",
    "namespaces",
    "core",
    "origins",
    "callers",
    "own_folders",
    "activation",
    "hook",
    "environment",
    "silent",
    "databases",
    "threads",
    "loops",
    "files",
    "looking",
    "events",
    "opening",
    "network",
    "processes",
    "tasks",
    "family",
    "imports",
    "answers",
    "integrity",
)
# Doors by name: module of the sealed part, function.
_DOORS = {
    "stat": ("looking", "stat_call"),
    "quick_stat": ("looking", "quick_stat"),
    "quick_lstat": ("looking", "quick_lstat"),
    "kind_by_making": ("looking", "kind_by_making"),
    "call": ("files", "call"),
    "access": ("looking", "access_call"),
    "check": ("events", "check_call"),
    "open_database": ("databases", "open_database"),
    "keep_silent": ("silent", "keep"),
    "silent": ("silent", "act"),
    "listing": ("files", "listing"),
    "real_path": ("looking", "real_path"),
    "open": ("opening", "builtin_open"),
    "copying": ("opening", "copying"),
    "os_open": ("opening", "os_open_call"),
    "quick_open": ("opening", "quick_open"),
    "connect": ("network", "connect"),
    "binding": ("network", "binding"),
    "look_up": ("network", "look_up"),
    "http_begin": ("network", "http_begin"),
    "http_end": ("network", "http_end"),
    "http_endpoint": ("network", "http_endpoint"),
    "message": ("network", "message"),
    "starting": ("processes", "starting"),
    "fork_exec": ("processes", "fork_exec"),
    "spawn": ("processes", "spawn"),
    "system": ("processes", "system"),
    "start_task": ("tasks", "start_task"),
    "end_task": ("family", "end_task"),
    "ready_for_tasks": ("tasks", "ready"),
    "environment": ("environment", "act"),
    "importing": ("imports", "importing"),
    "hidden_module": ("imports", "hidden"),
    "attribute": ("imports", "attribute"),
    "create_module": ("imports", "create"),
    "set_signal": ("threads", "set_signal"),
    "start_thread": ("threads", "start"),
    "describe": ("activation", "describe"),
    "enter": ("activation", "enter"),
    "leave": ("activation", "leave"),
    "bypass": ("activation", "bypass"),
    "begin": ("threads", "begin"),
    "end": ("threads", "end"),
    "note_tracer": ("threads", "note_tracer"),
    "is_tracer": ("threads", "is_tracer"),
    "ticket": ("threads", "ticket"),
    "callback_ticket": ("threads", "callback_ticket"),
    "carried": ("activation", "carried"),
    "scheduling": ("loops", "scheduling"),
    "handling": ("loops", "handling"),
    "adding": ("loops", "adding"),
    "running": ("loops", "running"),
    "know_tasks": ("loops", "know_tasks"),
    "know_futures": ("loops", "know_futures"),
    "know_native": ("loops", "know_native"),
    "runs_callbacks": ("activation", "runs_callbacks"),
    "info": ("activation", "info"),
    "info_by_token": ("activation", "info_by_token"),
    "use_approvals": ("activation", "use_approvals"),
    "approvals": ("activation", "approvals"),
    "is_chosen": ("activation", "is_chosen"),
    "external_access": ("activation", "external_access"),
    "is_protected": ("answers", "is_protected"),
    "protect": ("activation", "protect"),
}
# What an installed file contains that opens guards of its own accord.
_GUARD_NAMES = (
    b"democrai_osguard",
    b"process_guard_context",
    b"network_policy_context",
    *(
        f"{surface}_context".encode()
        for surface in (
            "module", "task", "engine", "extractor", "mcp", "tool", "agent", "pipeline", "media",
        )
    ),
)  # fmt: skip
# These are called most often, and keep their own exceptions in order.
_IN_ORDER = frozenset(
    {
        "begin",
        "end",
        "quick_stat",
        "quick_lstat",
        "stat_call",
        "call",
        "builtin_open",
        "os_open_call",
        "quick_open",
        "access_call",
        "listing",
        "start_task",
    }
)


def assemble(doors: dict[str, Any], undescribed: Iterable[Any]) -> None:
    """Install everything and fill in the doors; called once per process."""
    import encodings.idna  # noqa: PLC0415, F401 - sockets load it, perhaps where nothing is readable

    vault = Vault()
    sealed = {name: vault.load(f"{_SEALED}.{name}") for name in _MODULES}
    ready = {name: _door(sealed, module, function) for name, (module, function) in _DOORS.items()}
    # Both only say whether there is anything to judge; neither can be used to change that.
    ready["token"] = sealed["core"].VAR.get
    ready["watched"] = sealed["imports"].SENSITIVE | sealed["imports"].NEVER
    ready["watching"] = door(sealed["core"].WATCH.__len__)
    vault.hide()
    proxy = types.MappingProxyType(ready)  # who gets behind it changes what is put right again
    _configure(sealed, vault)
    _wrap(sealed, proxy)
    sealed["integrity"].take(_deciding(vault))
    sealed["integrity"].watch_over()
    for guard in filter(None, (each() for each in undescribed)):
        guard.hand_over(ready["describe"])
    doors.update(proxy)
    for mapping in (doors, ready):
        sealed["integrity"].watch_mapping(mapping)
    builtin_types.show(sealed)
    sys.addaudithook(_hook(sealed, ready["token"], ready["watching"]))


def _door(sealed: dict[str, ModuleType], module: str, function: str) -> Any:
    inner = getattr(sealed[module], function)
    if function in _IN_ORDER:
        return door(inner)
    return door(sealed["core"].shielded(inner, sealed["answers"].noted))


def _deciding(vault: Vault) -> list[ModuleType]:
    """Return the private modules that define classes, all but the sealed part itself."""
    return [module for name, module in vault.modules.items() if not name.startswith(_SEALED)]


def _configure(sealed: dict[str, ModuleType], vault: Vault) -> None:
    core, activation = sealed["core"], sealed["activation"]
    core.TRUSTED_ROOTS[0] = (*_both(runtime_paths.library_roots()), "<frozen ")
    core.HERE.append(core.here.__code__)
    core.UNGUARDED.append(core.unguarded.__code__)
    own = f"{os.path.dirname(os.path.dirname(os.path.abspath(__file__)))}/"
    _configure_origins(sealed, own)
    activation.VARIABLES.append(access_variable.child_environment)
    activation.GENERATOR_ENTER.extend(_generator_enters())
    sealed["threads"].DOOR.append(door)
    for module in (activation, sealed["loops"]):
        module.DOOR.append(door)
        module.PARTIAL.append(functools.partial)
    loaded = sealed["imports"]
    loaded.CREATED.update(name for name in loaded.ONCE if name in sys.modules)
    for verb in ("create_builtin", "create_dynamic"):
        loaded.ORIGINALS[verb] = getattr(_imp, verb)
    loaded.ORIGINALS["import"] = importlib.import_module
    loaded.ORIGINALS.update(door=door, partial=functools.partial)
    sealed["answers"].PROTECTED[0] = own_places()
    _configure_tasks(sealed["tasks"])
    for module in vault.modules.values():
        vars(module)[sealed["frames"].SEALED] = True
    Callers.roots = (*core.TRUSTED_ROOTS[0], own)
    Callers.through = _passing_modules()


def _configure_origins(sealed: dict[str, ModuleType], own: str) -> None:
    """Say whose code is whose, and what is opened to everybody, as it is before any guard."""
    origins, folders, callers = (sealed[name] for name in ("origins", "own_folders", "callers"))
    origins.RUNTIME_FILES[0] = (own,)
    origins.STANDARD_LIBRARY[0] = (*_both(runtime_paths.standard_library()), "<frozen ")
    origins.PACKAGES[0] = _both(runtime_paths.package_folders())
    origins.NAMES[0] = _GUARD_NAMES
    folders.SYSTEM.update(runtime_paths.system_rules())
    folders.HOME.append(os.path.expanduser("~"))
    callers.SKIP.extend(_skipped())
    classes = (contexts.process_guard_context, contexts.process_guard_bypass_context)
    methods = (getattr(each, name) for each in classes for name in ("__enter__", "__exit__"))
    callers.METHODS.extend(method.__code__ for method in methods)


def _both(folders: Iterable[str]) -> tuple[str, ...]:
    """Return folders as they are written and as they are, each with the slash that ends it."""
    every = (place for path in folders for place in (path, os.path.realpath(path)))
    return tuple(dict.fromkeys(f"{place}/" for place in every))


def _configure_tasks(tasks: ModuleType) -> None:
    """Read the settings now: what guarded code could change later has no part in them."""
    from democrai_osguard.settings import load_settings  # noqa: PLC0415 - loaded only where it is needed

    chosen = load_settings()
    tasks.SETTINGS.append((
        chosen.enabled, chosen.helper_socket, chosen.landlock, chosen.seccomp,
        chosen.extra_read_paths, chosen.extra_write_paths, chosen.require,
        chosen.refresh_seconds,
    ))  # fmt: skip
    tasks.PYTHON.append(sys.executable)
    inner: Any = os.environb._data  # type: ignore[attr-defined]  # noqa: SLF001 - copied in one step
    tasks.ENVIRONMENT.append(dict(inner))


def _skipped() -> list[Any]:
    """Return the code that opens and closes a context for whoever called it."""
    stack = contextlib.ExitStack
    functions: list[Any] = [
        stack.enter_context,
        stack.__exit__,
        stack.close,
        stack._push_cm_exit,  # type: ignore[attr-defined]  # noqa: SLF001 - there is no public name for it
        contextlib.AsyncExitStack.__aexit__,
    ]
    wrapper = stack._create_exit_wrapper  # type: ignore[attr-defined]  # noqa: SLF001 - there is no public name for it
    return [function.__code__ for function in (*functions, wrapper)]


def _generator_enters() -> list[Any]:
    sync = contextlib._GeneratorContextManager.__enter__  # noqa: SLF001 - there is no public name for it
    asynchronous = contextlib._AsyncGeneratorContextManager.__aenter__  # noqa: SLF001 - there is no public name for it
    return [sync.__code__, asynchronous.__code__]


def _passing_modules() -> tuple[str, ...]:
    """Return the files that only hand a path on: their caller is the one who means it."""
    places = [genericpath.__file__, os.__file__, os.path.__file__, wrappers.__file__]
    return (*filter(None, places), os.path.splitext(pathlib.__file__)[0])


def _wrap(sealed: dict[str, ModuleType], ready: Mapping[str, Any]) -> None:
    replacing.apply(patching.rows(ready), patching.calls(sealed, ready))
    patching.wrap_environment(sealed, ready)
    patching.wrap_modules(sealed)


def _hook(sealed: dict[str, ModuleType], token: Any, watching: Any) -> Any:
    opening, table = sealed["opening"], sealed["hook"].JUDGES

    # Defaults, not a closure: on 3.13 a frame's cells can be written through its locals. By
    # position, because filling in those by keyword takes longer than all else here. No builtins,
    # since anybody may replace those.
    def hook(
        event: str,
        args: tuple[Any, ...],
        _judge: Any = door(sealed["hook"].judge),  # noqa: B008 - made once, with the hook
        _reading: Any = door(opening.READING.pop),  # noqa: B008 - as above
        _writing: Any = door(opening.WRITING.pop),  # noqa: B008 - as above
        _acting: Any = door(sealed["files"].ACTING.get),  # noqa: B008 - as above
        _ident: Any = get_ident,
        _handled: Any = frozenset(table),
        _token: Any = token,
        _watching: Any = watching,
        _as_error: Any = as_error,
    ) -> None:
        if event in _handled and (_token(None) is not None or _watching()):
            # What a wrapper has judged, and is about to do, passes without being judged again.
            if event == "open":
                if (_writing if args[2] & 3 else _reading)(_ident(), None) is args[0]:
                    return
            elif event[:3] == "os.":
                noted = _acting(_ident())
                if noted is not None and noted[0] == event and args[noted[1]] is noted[2]:
                    return
            answer = _judge(event, args)
            if answer is not None:
                raise _as_error(answer) from None

    # A namespace of its own, as empty as it is hidden: on 3.13 whoever reaches its frame while it
    # is interrupted could write its locals.
    space = {sealed["frames"].SEALED: False, "__builtins__": {}}
    return types.FunctionType(hook.__code__, space, hook.__name__, hook.__defaults__)
