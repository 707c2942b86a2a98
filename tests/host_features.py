"""What this host offers to the tests, each feature probed once and for real.

A test names what it needs with `@pytest.mark.needs(...)`. Where a feature is missing the test is
skipped and the summary says why; a feature named in OSGUARD_MUST_RUN is a promise instead, and
its lack fails the test.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import os
import shutil
import stat
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

MUST_RUN = frozenset(filter(None, os.environ.get("OSGUARD_MUST_RUN", "").split(",")))
LACKING = "host lacks "

_LANDLOCK_CREATE_RULESET = 444  # the same number on every architecture
_VERSION_QUERY = 1


@functools.cache
def landlock_abi() -> int:
    """Return the Landlock ABI of this kernel, 0 where there is none."""
    libc = ctypes.CDLL(None, use_errno=True)
    answer = libc.syscall(
        ctypes.c_long(_LANDLOCK_CREATE_RULESET), None, ctypes.c_size_t(0), _VERSION_QUERY
    )
    return max(int(answer), 0)


def _has_seccomp() -> bool:
    actions = Path("/proc/sys/kernel/seccomp/actions_avail")
    return actions.exists() and "user_notif" in actions.read_text().split()


def _python(version: str) -> str | None:
    """Find an interpreter of this version on PATH or among pyenv's."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    candidates = sorted(pyenv.glob(f"{version}.*/bin/python3"))
    return str(candidates[-1]) if candidates else shutil.which(f"python{version}")


def _assembler(machine: str) -> str | None:
    own = shutil.which("as") if os.uname().machine == machine else None
    return own or shutil.which(f"{machine.replace('_', '-')}-linux-gnu-as")


def _others_may_read_the_package() -> bool:
    """Tell whether whoever this process becomes can load what it tests: nobody enters /root."""
    found = importlib.util.find_spec("democrai_osguard_launcher")
    assert found is not None
    assert found.origin is not None
    return all(folder.stat().st_mode & stat.S_IXOTH for folder in Path(found.origin).parents)


PROBES: dict[str, Callable[[], object]] = {
    "landlock": lambda: landlock_abi() >= 1,
    "landlock-truncate": lambda: landlock_abi() >= 3,
    "landlock-tcp": lambda: landlock_abi() >= 4,
    "landlock-scopes": lambda: landlock_abi() >= 6,
    "seccomp": _has_seccomp,
    "root": lambda: os.geteuid() == 0,
    "readable-tree": _others_may_read_the_package,
    "python3.12": lambda: _python("3.12") is not None,
    "python3.13": lambda: _python("3.13") is not None,
    "assembler-x86_64": lambda: _assembler("x86_64"),
    "assembler-aarch64": lambda: _assembler("aarch64"),
    **{
        name: functools.partial(shutil.which, name)
        for name in ("chromium", "curl", "gcc", "git", "go", "java", "javac", "node", "sqlite3")
    },
}


@functools.cache
def offers(feature: str) -> bool:
    """Tell whether the host has the feature; an unknown name is an error in the test."""
    return bool(PROBES[feature]())


def require(feature: str) -> None:
    """Go on where the host has the feature."""
    if not offers(feature):
        lack(feature)


def lack(feature: str) -> NoReturn:
    """Skip the test for want of a feature; fail it where the feature was promised to be there."""
    if feature in MUST_RUN:
        pytest.fail(f"this host must provide {feature} (OSGUARD_MUST_RUN)")
    pytest.skip(f"{LACKING}{feature}")


def interpreter(version: str) -> str:
    """Return the path of that Python; the test must have asked for the feature."""
    found = _python(version)
    assert found is not None
    return found
