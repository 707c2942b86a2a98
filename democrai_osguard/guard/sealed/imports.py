"""Imports that reach below Python: the sensitive roots, and native code from elsewhere."""

from __future__ import annotations

from _imp import extension_suffixes
from _thread import get_ident
from types import SimpleNamespace
from typing import Any

from democrai_osguard.guard.sealed.answers import about_path, refusal
from democrai_osguard.guard.sealed.core import TRUSTED_ROOTS, State, current, text_of
from democrai_osguard.guard.sealed.paths import absolute, is_there, resolve

SENSITIVE = frozenset({"ctypes", "_ctypes", "cffi", "_cffi_backend"})
# No hook runs in another interpreter; the test modules hand out the C API.
NEVER = frozenset(
    {
        "_xxsubinterpreters",
        "_interpreters",
        "_xxinterpchannels",
        "_interpchannels",
        "_interpqueues",
        "_testcapi",
        "_testlimitedcapi",
        "_testinternalcapi",
        "_ctypes_test",
        "_testbuffer",
        "_testexternalinspection",  # reads other processes' memory, as the next one does
        "_remote_debugging",
        "_tkinter",  # an interpreter of its own, with files, sockets and processes
        "ossaudiodev",  # opens any path without an event
        "nis",  # asks other machines
        "spwd",  # reads passwords
    }
)
# C modules that hold originals: a second copy of one would hand them out again.
ONCE = frozenset(
    {
        "_contextvars",
        "_dbm",
        "_gdbm",
        "_imp",
        "_io",
        "_posixshmem",
        "_posixsubprocess",
        "_signal",
        "_socket",
        "_sqlite3",
        "_thread",
        "atexit",
        "builtins",
        "gc",
        "posix",
        "readline",
        "sys",
    }
)
_ENDS = ("/__init__.py", ".py", *extension_suffixes())  # of the file that a module is
_VERBS = ("create_builtin", "create_dynamic")
CREATED: set[str] = set()
CREATING: set[tuple[int, str]] = set()  # what each thread is loading, already judged
ORIGINALS: dict[str, Any] = {}
_BRINGS = {"ctypes": ("_ctypes",), "cffi": ("_cffi_backend",)}
MODULES: dict[str, Any] = {}  # sensitive modules that are loaded, behind stand-ins


def opened(roots: tuple[str, ...]) -> frozenset[str]:
    """Return the roots with the extension module that each is made of."""
    return frozenset(roots).union(*(_BRINGS.get(root, ()) for root in roots))


def about_import(state: State, name: str) -> Warning | None:
    """Return the refusal of an import by name."""
    root = name.partition(".")[0]
    if (root in SENSITIVE or root in NEVER) and root not in state.imports:
        return refusal(state, "sandbox_module_denied", None, root)
    return None


def importing(name: object) -> Warning | None:
    """Judge an import statement or a call of `__import__`."""
    root = (text_of(name) or "").partition(".")[0]
    if root not in SENSITIVE and root not in NEVER:
        return None
    state = current()
    return None if state is None else about_import(state, root)


def about_copy(state: State, name: str) -> Warning | None:
    """Return the refusal of a second copy of a module that is loaded."""
    last = name.rpartition(".")[2]  # the part that says which function initialises it
    if last in CREATED:
        return refusal(state, "sandbox_module_denied", None, last, "it is loaded already")
    if last in ONCE:
        CREATED.add(last)
    return None


def hidden(name: object) -> Warning | None:
    """Return the refusal of an installed module that is not found because it may not be read.

    Only where the interpreter and its packages are: what else is on the search path is not told.
    """
    state, parts = current(), (text_of(name) or "").split(".")
    if state is None or not all(map(str.isidentifier, parts)):
        return None
    for root in TRUSTED_ROOTS[0]:
        for end in _ENDS:
            place = f"{root}{'/'.join(parts)}{end}"
            if is_there(place):
                return about_path(state, "read", resolve(place))
    return None


def create(verb: str, name: Any, origin: Any, spec: Any) -> object:
    """Judge `_imp.create_builtin` or `create_dynamic`; return what makes that one module.

    It is called outside: a module that is being made may run any code, which must not run above
    a frame of ours.
    """
    state = current()
    if type(verb) is not str or verb not in _VERBS:
        raise TypeError("a module is built in or dynamic")
    if state is None:
        last = (text_of(name) or "").rpartition(".")[2]
        if last in ONCE:
            CREATED.add(last)
        return ORIGINALS["door"](ORIGINALS["partial"](ORIGINALS[verb], spec))
    plain, place = text_of(name) or "", text_of(origin)
    answer = about_import(state, plain) or about_import(state, plain.rpartition(".")[2])
    if answer is None:
        native = verb == "create_dynamic"
        answer = about_native(state, plain, place) if native else about_copy(state, plain)
    if answer is not None:
        return answer
    CREATING.add((get_ident(), plain))
    # A spec of our own, because theirs could name another module when it is asked again.
    own = SimpleNamespace(name=plain, origin=place, loader=None)
    return ORIGINALS["door"](ORIGINALS["partial"](ORIGINALS[verb], own))


def about_native(state: State, name: str, filename: object) -> Warning | None:
    """Judge the loading of an extension module from a file."""
    filename = text_of(filename)
    if not filename:
        return None
    answer = about_copy(state, name)
    if answer is not None:
        return answer
    try:
        place = resolve(absolute(filename))
    except Warning:
        place = filename
    if place.startswith(TRUSTED_ROOTS[0]) or about_path(state, "execute", place) is None:
        return None
    return refusal(state, "sandbox_module_denied", None, name.partition(".")[0], place)


def attribute(root: str, name: str) -> Any:
    """Return an attribute of a sensitive module, or the refusal of it."""
    if type(root) is not str or type(name) is not str or root not in SENSITIVE | NEVER:
        raise TypeError("only sensitive modules have stand-ins")
    answer = importing(root)
    if answer is not None:
        return answer
    if root not in MODULES:  # a library got a stand-in under a guard, and is used without one
        MODULES[root] = ORIGINALS["import"](root)
    return getattr(MODULES[root], name)


def native_call(state: State) -> Warning | None:
    """Judge a use of ctypes, however it was reached."""
    return about_import(state, "ctypes")
