"""Looks at the host, the command and the targets, once, before the plan is made."""

from __future__ import annotations

import os
import stat

from . import kernel, program
from .baseline import LOADERS
from .errors import LaunchError
from .plan import DIRECTORY, FILE, MISSING, SOCKET, Facts
from .rules import FILESYSTEM, NETWORK, SYSTEM_DEPENDENCY, within
from .stored_programs import MACHINES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from .rules import Rule

_LAST_STANDARD = 2


def gather(rules: Sequence[Rule], command: program.Program | None, path: str | None) -> Facts:
    """Collect what the plan for these rules and this command needs to know."""
    lacks = _what_the_helper_lacks(rules)  # first: what the helper then begins goes on meanwhile
    targets = dict.fromkeys(rule.target for rule in rules if rule.resource_type == FILESYSTEM)
    names = {rule.target for rule in rules if rule.resource_type == SYSTEM_DEPENDENCY}
    seccomp = can_filter()
    seen = {target: look(target) for target in targets}
    programs = _find_all(names, path)
    started = [found for found in (command, *programs.values()) if found]
    return Facts(
        abi=kernel.landlock_abi(),
        seccomp=seccomp,
        notifications=seccomp and kernel.has_notifications(),
        kinds={target: kind for target, (kind, _) in seen.items()},
        programs=_files(programs),
        executables=command.executables if command else (),
        readable=command.readable if command else (),
        helper=lacks is not None,
        helper_lacks=lacks or (),
        objects={target: found for target, (_, found) in seen.items() if found},
        loaders=_loaders(started),
        to_helper=_to_helper(rules, seen),
    )


def is_root() -> bool:
    """Tell whether this is root itself, and not somebody whom a namespace calls so."""
    if os.getuid() != 0:
        return False
    try:
        with open("/proc/self/uid_map", encoding="ascii") as file:
            return stands_for_itself(file.readline())
    except OSError:
        return True


def stands_for_itself(line: str) -> bool:
    """Tell from the first line of a namespace's map of users whether its first is who he says."""
    inside, outside, _ = line.split()
    return inside == outside


def inherited_descriptors() -> tuple[int, ...]:
    """Return what is open above 2 and would go on to a command, if nobody closed it."""
    try:
        numbers = sorted(int(name) for name in os.listdir("/proc/self/fd"))
    except OSError:
        return ()
    return tuple(each for each in numbers if each > _LAST_STANDARD and _goes_on(each))


def _goes_on(descriptor: int) -> bool:
    try:
        return os.get_inheritable(descriptor)
    except OSError:  # the listing's own
        return False


def find_programs(names: Iterable[str], path: str | None) -> dict[str, tuple[str, ...]]:
    """Return the files behind each system dependency."""
    return _files(_find_all(names, path))


def _find_all(names: Iterable[str], path: str | None) -> dict[str, program.Program | None]:
    return {name: _find(name, path) for name in names}


def _files(programs: dict[str, program.Program | None]) -> dict[str, tuple[str, ...]]:
    return {name: found.executables if found else () for name, found in programs.items()}


def _loaders(started: Sequence[program.Program]) -> tuple[str, ...]:
    """Return the loaders that are there, but for one that was itself asked for by name."""
    not_held = {None, *(look(each.path)[1] for each in started)}
    paths = dict.fromkeys((*LOADERS, *(path for each in started for path in each.loaders)))
    return tuple(path for path in paths if look(path)[1] not in not_held)


def _what_the_helper_lacks(rules: Sequence[Rule]) -> tuple[str, ...] | None:
    """Return what the helper cannot hold addresses with; None where it is not used at all."""
    if not any(rule.resource_type == NETWORK for rule in rules):
        return None
    from .helper_socket import missing_layers  # noqa: PLC0415 - only network rules need the helper

    return missing_layers()


def _to_helper(
    rules: Sequence[Rule], seen: dict[str, tuple[str, tuple[int, int] | None]]
) -> frozenset[str]:
    """Return the targets of rules to modify by which the helper's socket could be reached."""
    modified = {rule.target for rule in rules if rule.operation == "modify"}
    if not modified:
        return frozenset()
    from .helper_socket import places  # noqa: PLC0415 - most commands modify nothing

    own = {os.path.realpath(place) for place in places()}
    objects = {found for place in own if (found := look(place)[1])}
    return frozenset(
        target
        for target in modified
        if any(within(place, {target}) for place in own) or seen[target][1] in objects
    )


def can_filter() -> bool:
    """Tell whether the kernel has seccomp, and we a program for this machine."""
    return os.uname().machine in MACHINES and kernel.has_seccomp()


def look(path: str) -> tuple[str, tuple[int, int] | None]:
    """Return what kind of object the path leads to, and which one."""
    try:
        status = os.stat(path)
    except OSError:
        return MISSING, None
    found = status.st_dev, status.st_ino
    if stat.S_ISDIR(status.st_mode):
        return DIRECTORY, found
    return (SOCKET if stat.S_ISSOCK(status.st_mode) else FILE), found


def _find(name: str, path: str | None) -> program.Program | None:
    try:
        return program.find(name, path)
    except LaunchError:
        return None
