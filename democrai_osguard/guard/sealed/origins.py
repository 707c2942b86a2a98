"""Where code comes from: a name in it is only what it says, the file of that name decides.

Only code that was loaded under a guard is looked at: what was there before is the host's.
"""

from __future__ import annotations

from _imp import find_frozen, get_frozen_object
from posix import close, fstat, read
from typing import TYPE_CHECKING, Any

from democrai_osguard.guard.sealed.core import LOADED, MARKED, TRUSTED_ROOTS, parts_of, text_of
from democrai_osguard.guard.sealed.opening import O_CLOEXEC, open_passed

if TYPE_CHECKING:
    from types import CodeType

RUNTIME_FILES: list[tuple[str, ...]] = [()]
STANDARD_LIBRARY: list[tuple[str, ...]] = [()]
PACKAGES: list[tuple[str, ...]] = [()]  # folders of installed packages, some of them in the above
NAMES: list[tuple[bytes, ...]] = [()]  # what a file contains that opens guards of its own accord
_FROZEN = "<frozen "
_ROOM = 64
_loaded: dict[int, CodeType] = {}  # `LOADED`, with all that is in it
_contents: dict[str, frozenset[CodeType]] = {}
_knowing: dict[str, bool] = {}

GUARDED, HOST, RUNTIME, STANDARD, PACKAGE = "guarded", "host", "runtime", "standard", "package"


def origin(code: CodeType) -> str:
    """Return whose code this is."""
    if id(code) in MARKED:
        return GUARDED
    name = text_of(code.co_filename) or ""
    if name.startswith(RUNTIME_FILES[0]):
        found = RUNTIME
    elif not name.startswith(TRUSTED_ROOTS[0]):
        return GUARDED if _came_under_a_guard(code) else HOST
    else:
        standard = name.startswith(STANDARD_LIBRARY[0]) and not name.startswith(PACKAGES[0])
        found = STANDARD if standard else PACKAGE
    return found if not _came_under_a_guard(code) or is_genuine(code) else GUARDED


def _came_under_a_guard(code: CodeType) -> bool:
    while LOADED:
        _loaded.update((id(each), each) for each in parts_of(LOADED.pop()))
    return id(code) in _loaded


def is_genuine(code: CodeType) -> bool:
    """Tell whether code is part of what the file that it names contains."""
    name = text_of(code.co_filename) or ""
    known = _contents.get(name)
    if known is None:
        if len(_contents) > _ROOM:
            _contents.clear()
        known = _contents[name] = _contents_of(name)
    return code in known


def _contents_of(name: str) -> frozenset[CodeType]:
    try:
        whole: Any = (
            _frozen(name.removeprefix(_FROZEN).removesuffix(">"))
            if name.startswith(_FROZEN)
            else compile(_text_of_file(name), name, "exec", dont_inherit=True)
        )
    except (OSError, ValueError, SyntaxError, ImportError):
        return frozenset()
    return frozenset(parts_of(whole))


def _frozen(module: str) -> CodeType:
    if find_frozen(module) is None:
        raise ImportError(module)
    return get_frozen_object(module)


def knows_guards(name: str) -> bool:
    """Tell whether an installed file speaks of guards: others only call what they are handed."""
    if name not in _knowing:
        try:
            text = _text_of_file(name)
        except OSError:
            text = b""
        _knowing[name] = any(each in text for each in NAMES[0])
    return _knowing[name]


def package_of(name: str) -> str:
    """Return the folder or file below a folder of packages that this file belongs to."""
    for root in PACKAGES[0]:
        if name.startswith(root):
            return root + name[len(root) :].partition("/")[0]
    return ""


def _text_of_file(name: str) -> bytes:
    descriptor = open_passed(name, O_CLOEXEC, 0)
    try:
        size, text = fstat(descriptor).st_size, b""
        while piece := read(descriptor, size + 1):
            text += piece
        return text
    finally:
        close(descriptor)
