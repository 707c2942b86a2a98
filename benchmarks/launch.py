"""What it costs to start a command confined, and what it costs the command afterwards.

Cold: `democrai-launch` from an installed wheel. Warm: the process that a long-lived program keeps.
Beside them: a bare spawn, and bubblewrap where the host has it.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
import tempfile
from typing import TYPE_CHECKING

from benchmarks.case import Case
from democrai_osguard_launcher.warm_client import WarmLauncher

if TYPE_CHECKING:
    from benchmarks.case import Act

_TRUE = "/bin/true"
# Long enough that the launch itself, which is measured above, does not count.
_FILES = "i=0; while [ $i -lt 20000 ]; do : < {0}/f; [ -e {0}/f ]; i=$((i+1)); done"
_PYTHONS = "i=0; while [ $i -lt 8 ]; do {0} -I -c pass; i=$((i+1)); done"


def cases() -> list[Case]:
    """Return the cases of this file."""
    folder = tempfile.mkdtemp(prefix="osguard-bench-")
    with open(f"{folder}/f", "w", encoding="ascii") as file:
        file.write("x")
    return [*_warm(folder), _cold(), _rules(folder), *_inside(folder)]


def _warm(folder: str) -> list[Case]:
    spawn = functools.partial(_spawn, (_TRUE,))
    warm = {"warm launch, 20 rules": _warm_launch(folder, 20)}
    found = [Case("start /bin/true", ("posix_spawn", spawn), warm, limit=3.0, calls=10)]
    if bwrap := shutil.which("bwrap"):
        other = functools.partial(_spawn, (bwrap, "--ro-bind", "/", "/", _TRUE))
        found.append(Case("start /bin/true", ("bwrap", other), warm, limit=0.75, calls=10))
    return found


def _cold() -> Case:
    bare = functools.partial(_spawn, (sys.executable, "-I", "-S", "-c", "pass"))
    launch = functools.partial(_spawn, (_launcher(), "--", _TRUE))
    return Case(
        "cold start",
        ("python -I -S -c pass", bare),
        {"democrai-launch": launch},
        limit=2.2,
        calls=5,
    )


def _rules(folder: str) -> Case:
    few, many = _warm_launch(folder, 20), _warm_launch(folder, 1000)
    return Case("rules", ("20 rules", few), {"1,000 rules": many}, limit=3.0, calls=5)


def _inside(folder: str) -> list[Case]:
    loop = ("/bin/sh", "-c", _FILES.format(folder))
    python = ("/bin/sh", "-c", _PYTHONS.format(sys.executable))
    return [
        _after_exec("shell loop over files", loop, folder),
        _after_exec("python -I -c pass", python, folder),
    ]


def _after_exec(name: str, command: tuple[str, ...], folder: str) -> Case:
    """Compare a command that runs confined with the same one free, both started the same way."""
    free = functools.partial(_spawn, command)
    confined = _warm_launch(folder, 20, command)
    return Case(name, ("free", free), {"confined": confined}, limit=1.1, calls=1)


def _warm_launch(folder: str, rules: int, command: tuple[str, ...] = (_TRUE,)) -> Act:
    launcher = WarmLauncher()
    targets = [f"{folder}/r{number}" for number in range(rules - 4)]
    for target in targets:
        os.makedirs(target, exist_ok=True)
    # Side by side, so that no rule makes another one needless; the file has one of its own.
    own = [
        {"resource_type": "filesystem", "operation": "read", "target": target}
        for target in (f"{folder}/f", sys.prefix, sys.base_prefix, *targets)
    ]
    own.append({**own[0], "operation": "execute", "target": os.path.realpath(sys.executable)})
    request = {
        "command": list(command),
        "environment": {"PATH": os.environ["PATH"]},
        "folder": None,
        "access": own,
        "subject": None,
        "require": "full",
        "limits": {},
    }

    def launch() -> None:
        _reap(launcher.launch(request))

    return launch


def _spawn(command: tuple[str, ...]) -> None:
    _reap(os.posix_spawn(command[0], command, os.environ))


def _reap(pid: int) -> None:
    _, status = os.waitpid(pid, 0)
    if status:
        raise subprocess.CalledProcessError(os.waitstatus_to_exitcode(status), "the command")


@functools.cache
def _launcher() -> str:
    """Return `democrai-launch` of an environment into which the wheel was installed."""
    made = tempfile.mkdtemp(prefix="osguard-wheel-")
    subprocess.run([sys.executable, "-m", "venv", made], check=True)
    install = [f"{made}/bin/pip", "install", "--quiet", "--no-deps", "."]
    subprocess.run(install, check=True, capture_output=True)
    return f"{made}/bin/democrai-launch"
