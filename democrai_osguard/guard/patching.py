"""Wrapping everything that the tables name, at installation."""

from __future__ import annotations

import _io
import _posixsubprocess
import _socket
import _thread
import functools
import os
import posix
import sys
from typing import TYPE_CHECKING, Any

from democrai_osguard.guard import wrappers
from democrai_osguard.guard.patches.databases import database_patches
from democrai_osguard.guard.patches.environment import EnvironmentData
from democrai_osguard.guard.patches.files import FILE_CALLS, PROBES, SILENT_CALLS
from democrai_osguard.guard.patches.folders import folder_patches
from democrai_osguard.guard.patches.http import http_patches
from democrai_osguard.guard.patches.imports import import_patches, replace_sensitive
from democrai_osguard.guard.patches.listing import scandir_wrapper, search_patches
from democrai_osguard.guard.patches.loops import added, loop_patches
from democrai_osguard.guard.patches.native_loops import native_loop_patches, native_makers
from democrai_osguard.guard.patches.processes import process_patches
from democrai_osguard.guard.patches.raw_files import open_code_wrapper, raw_file_class
from democrai_osguard.guard.patches.rows import Replacement
from democrai_osguard.guard.patches.sockets import LOOK_UPS, socket_patches
from democrai_osguard.guard.patches.temporary import temporary_patches
from democrai_osguard.guard.patches.threads import runner, thread_patches, thread_start, unframed
from democrai_osguard.guard.patches.tracing import tracing_patches
from democrai_osguard.guard.patches.websockets import websocket_patches
from democrai_osguard.guard.replacing import dress

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import ModuleType

_THREAD_STARTS = ("start_new_thread", "start_joinable_thread")
_ENVIRONMENTS: tuple[tuple[Any, tuple[str, ...]], ...] = (
    (os, ("environ", "environb")),
    (os.environ, ("_data", "encodekey", "decodekey", "encodevalue", "decodevalue")),
    (os.environb, ("_data", "encodekey", "decodekey", "encodevalue", "decodevalue")),
    (posix, ("environ",)),
)
_SPAWNERS = ("posix_spawn", "posix_spawnp", "execve", "system")


def calls(sealed: Mapping[str, ModuleType], doors: Mapping[str, Any]) -> list[tuple[Any, Any]]:
    """Return C functions that are replaced under every name they have, with their wrappers."""
    token, watching = doors["token"], doors["watching"]
    opened = wrappers.open_wrapper(_io.open, doors["open"], token, watching)
    os_opened = wrappers.os_open_wrapper(posix.open, doors)

    def guarded() -> bool:
        return token(None) is not None or bool(watching())

    pairs: list[tuple[Any, Any]] = [
        (_io.open, opened),
        (_io.open_code, open_code_wrapper(_io.open_code, opened, guarded)),
        (_io.FileIO, raw_file_class(_io.FileIO, os_opened, guarded)),
        (posix.stat, wrappers.stat_wrapper(doors["quick_stat"], doors["stat"])),
        (posix.lstat, wrappers.lstat_wrapper(doors["quick_lstat"], doors["stat"])),
        (posix.open, os_opened),
        (posix.access, wrappers.access_wrapper(doors["access"])),
        (posix.scandir, scandir_wrapper(doors["listing"])),
    ]
    for row in FILE_CALLS:
        original = getattr(posix, row.name, None)
        if original is not None:
            sealed["files"].ORIGINALS[row.name] = original
            sealed["files"].TOUCHES[row.name] = tuple(touch.plain for touch in row.touches)
            pairs.append((original, wrappers.call_wrapper(row, doors["call"])))
    _keep_spawners(sealed)
    for name in LOOK_UPS:
        sealed["network"].ORIGINALS[name] = getattr(_socket, name)
    pairs += _threads(sealed, doors)
    return [(original, dress(wrapper, original)) for original, wrapper in pairs]


def _keep_spawners(sealed: Mapping[str, ModuleType]) -> None:
    """Keep the originals that start processes; their wrappers are rows of their own."""
    kept = sealed["processes"].ORIGINALS
    kept["fork_exec"] = _posixsubprocess.fork_exec
    for name in _SPAWNERS:
        kept[name] = getattr(posix, name)


def _threads(sealed: Mapping[str, ModuleType], doors: Mapping[str, Any]) -> list[tuple[Any, Any]]:

    work = sealed["threads"]
    work.ORIGINALS["partial"] = functools.partial
    work.RUNNER.extend((runner, doors["begin"], doors["end"]))
    work.RUNNER_CODE.append(runner.__code__)
    work.ORIGINALS["signal"] = sys.modules["_signal"].signal
    work.HANDLER_CODE.append(unframed(runner).__code__)
    sealed["loops"].ADDING.append(added(doors))
    sealed["loops"].NATIVE.append(native_makers(doors))
    pairs = []
    for name in _THREAD_STARTS:
        original = getattr(_thread, name, None)
        if original is not None:
            work.ORIGINALS[name] = original
            pairs.append((original, thread_start(doors, name)))
    alias = _thread.start_new  # an old name of the same function
    if alias is not _thread.start_new_thread:
        pairs.append((alias, pairs[0][1]))
    return pairs


def rows(doors: Mapping[str, Any]) -> list[Replacement]:
    """Return every row that replaces an attribute, of libraries that may come later too."""
    found = [
        *folder_patches(doors),
        *search_patches(doors),
        *temporary_patches(doors),
        *process_patches(doors),
        *thread_patches(doors),
        *loop_patches(doors),
        *native_loop_patches(doors),
        *tracing_patches(doors),
        *socket_patches(doors),
        *http_patches(doors),
        *websocket_patches(doors),
        *database_patches(doors),
        *import_patches(doors),
    ]
    for owner, name, look, test in PROBES:
        found.append(Replacement(owner, name, _probe(doors, look, test), everywhere=True))
    for owner, name in SILENT_CALLS:
        make = wrappers.silent_maker(doors, f"{owner}.{name}")
        found.append(Replacement(owner, name, make, everywhere=True))
    found.append(Replacement("posixpath", "realpath", _realpath(doors), everywhere=True))
    return found


def _probe(doors: Mapping[str, Any], look: str, test: Any) -> Any:
    by_making, follows = doors["kind_by_making"], look == "quick_stat"

    def kind(path: Any) -> Any:
        return by_making(path, follows)

    return lambda _original: wrappers.probe_wrapper(doors[look], kind, test)


def _realpath(doors: Mapping[str, Any]) -> Any:
    return lambda original: wrappers.realpath_wrapper(original, doors["real_path"])


def wrap_environment(sealed: Mapping[str, ModuleType], doors: Mapping[str, Any]) -> None:
    """Move what `os.environ` holds behind a door; the dict itself was anybody's to keep."""
    inner: Any = os.environ._data  # type: ignore[attr-defined]  # noqa: SLF001 - there is no public name for it
    sealed["environment"].LIVE[0] = dict(inner)
    data = EnvironmentData(doors)
    os.environ._data = data  # type: ignore[attr-defined]  # noqa: SLF001 - there is no public name for it
    os.environb._data = data  # type: ignore[attr-defined]  # noqa: SLF001 - there is no public name for it
    posix.environ = data  # type: ignore[assignment] # whoever loads `os` again takes it from there
    for owner, names in _ENVIRONMENTS:
        sealed["integrity"].watch_attributes(owner, *names)


def wrap_modules(sealed: Mapping[str, ModuleType]) -> None:
    """Put stand-ins in the place of sensitive modules that are loaded."""
    replace_sensitive(sealed["imports"].MODULES)
    for name in ("_interpreters", "_xxsubinterpreters"):
        sys.modules.pop(name, None)
