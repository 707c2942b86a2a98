"""Looks at the host, the command and the targets, once, before the plan is made."""

from __future__ import annotations

import os
import stat

from . import kernel, program
from .errors import LaunchError
from .plan import DIRECTORY, FILE, MISSING, SOCKET, Facts
from .rules import FILESYSTEM, NETWORK, SYSTEM_DEPENDENCY
from .seccomp import ARCHITECTURES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from .rules import Rule


def gather(rules: Sequence[Rule], command: program.Program | None, path: str | None) -> Facts:
    """Collect what the plan for these rules and this command needs to know."""
    helper = _has_helper(rules)  # first: what the helper then begins goes on meanwhile
    targets = dict.fromkeys(rule.target for rule in rules if rule.resource_type == FILESYSTEM)
    names = {rule.target for rule in rules if rule.resource_type == SYSTEM_DEPENDENCY}
    seccomp = can_filter()
    seen = {target: _look(target) for target in targets}
    return Facts(
        abi=kernel.landlock_abi(),
        seccomp=seccomp,
        notifications=seccomp and kernel.has_notifications(),
        kinds={target: kind for target, (kind, _) in seen.items()},
        programs={name: _files(name, path) for name in names},
        executables=command.executables if command else (),
        readable=command.readable if command else (),
        helper=helper,
        objects={target: found for target, (_, found) in seen.items() if found},
    )


def _has_helper(rules: Sequence[Rule]) -> bool:
    if not any(rule.resource_type == NETWORK for rule in rules):
        return False
    from .helper_socket import is_reachable  # noqa: PLC0415 - only network rules need the helper

    return is_reachable()


def can_filter() -> bool:
    """Tell whether the kernel has seccomp, and we a program for this machine."""
    return os.uname().machine in ARCHITECTURES and kernel.has_seccomp()


def _look(path: str) -> tuple[str, tuple[int, int] | None]:
    try:
        status = os.stat(path)
    except OSError:
        return MISSING, None
    found = status.st_dev, status.st_ino
    if stat.S_ISDIR(status.st_mode):
        return DIRECTORY, found
    return (SOCKET if stat.S_ISSOCK(status.st_mode) else FILE), found


def _files(name: str, path: str | None) -> tuple[str, ...]:
    try:
        return program.find(name, path).executables
    except LaunchError:
        return ()
