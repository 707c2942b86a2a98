"""Every error of the package arrives as it was sent: by pickle, from a pool, and as a copy."""

from __future__ import annotations

import copy
import importlib
import inspect
import pickle
import pkgutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

import democrai_osguard
from democrai_osguard.errors import NetworkTargetMissing, OsGuardError, TargetError
from democrai_osguard.refusals import FilesystemDenied, ModuleHidden
from democrai_osguard_helper.client import HelperRefused, HelperUnavailable
from democrai_osguard_launcher.errors import LaunchError
from democrai_osguard_launcher.warm_client import LaunchFailed

if TYPE_CHECKING:
    from collections.abc import Callable

_NEVER_LOADED = ("democrai_osguard.guard.sealed",)  # in here they have no names
_SAMPLES: dict[str, Any] = {
    "str": "some words",
    "object": "a value",
    "int": 5,
    "bytes": b"bytes",
    "tuple[str, ...]": ("access[0]: one", "access[1]: two"),
    "OSError": OSError(28, "No space left on device"),
}


def _modules() -> list[str]:
    found = pkgutil.walk_packages(democrai_osguard.__path__, "democrai_osguard.")
    return [each.name for each in found if not each.name.startswith(_NEVER_LOADED)]


def _classes() -> list[type[BaseException]]:
    """Return every exception that the package defines, and what it hands on of the programs."""
    found: dict[type[BaseException], None] = {}
    for name in _modules():
        for value in vars(importlib.import_module(name)).values():
            if inspect.isclass(value) and issubclass(value, BaseException):
                found[value] = None
    own = [each for each in found if each.__module__.startswith("democrai_osguard.")]
    return [*own, HelperRefused, HelperUnavailable, LaunchError, LaunchFailed]


def _made(kind: type[BaseException]) -> BaseException:
    init = next(vars(each)["__init__"] for each in kind.__mro__ if "__init__" in vars(each))
    if not inspect.isfunction(init):
        return kind("some words")
    needed = [
        each
        for each in list(inspect.signature(init).parameters.values())[1:]
        if each.kind is each.POSITIONAL_OR_KEYWORD and each.default is each.empty
    ]
    return kind(*(_SAMPLES[str(each.annotation)] for each in needed))


def _told(error: BaseException) -> list[object]:
    names = ("errno", "strerror", "filename", "name", "path", "code")
    fields = {**vars(error), **{name: getattr(error, name, None) for name in names}}
    return [type(error), str(error), error.args, {key: repr(fields[key]) for key in fields}]


WAYS: dict[str, Callable[[Any], Any]] = {
    "pickle": lambda error: pickle.loads(pickle.dumps(error)),  # noqa: S301 - our own bytes
    "oldest pickle": lambda error: pickle.loads(pickle.dumps(error, 0)),  # noqa: S301 - likewise
    "copy": copy.copy,
    "deep copy": copy.deepcopy,
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", _classes(), ids=lambda kind: kind.__qualname__)
def test_an_error_arrives_as_it_was_sent(kind: type[BaseException], way: str) -> None:
    error = _made(kind)
    error.hint = "Ask somebody."  # type: ignore[attr-defined]
    assert _told(WAYS[way](error)) == _told(error)


@pytest.mark.parametrize("way", WAYS)
def test_what_c_code_keeps_of_an_error_arrives_too(way: str) -> None:
    denied = FilesystemDenied("text", subject="m", operation="read", target="/x", chain=("a:b",))
    denied.filename = "/x"
    for error in (denied, ModuleHidden("text", name="module", path="/lib/module.py")):
        assert _told(WAYS[way](error)) == _told(error)


def test_every_error_has_a_code_that_stays() -> None:
    own = [each for each in _classes() if issubclass(each, OsGuardError)]
    assert {TargetError, NetworkTargetMissing} <= set(own)
    assert all(each.code for each in own)


# In a process of its own: a pool leaves one behind that watches its semaphores.
POOL = """
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from democrai_osguard import load_manifest, normalize_target

if __name__ == "__main__":
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        for words in ((normalize_target, "network", ""), (load_manifest, {"x": 1})):
            error = pool.submit(*words).exception(60)
            print(type(error).__name__, error.code)
        print(pool.submit(normalize_target, "network", "a.example.com").result(60))
"""
HANDED_BACK = """\
NetworkTargetMissing network_target_missing
ManifestError invalid_manifest
a.example.com
"""


def test_a_pool_hands_an_error_back_and_goes_on() -> None:
    done = subprocess.run(
        [sys.executable, "-c", POOL], capture_output=True, text=True, check=False, timeout=120
    )
    assert (done.stdout, done.stderr) == (HANDED_BACK, "")
