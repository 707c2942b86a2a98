"""Entry points that start processes, and the C functions beneath all of them."""

from __future__ import annotations

import os
from operator import index
from typing import TYPE_CHECKING, Any

from democrai_osguard.guard.outcome import as_error
from democrai_osguard.guard.patches.rows import Replacement
from democrai_osguard.guard.wrappers import plain

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

# Refused by the name that the caller used; what they start is judged further down.
_ENTRY_POINTS = (
    ("subprocess", "run", True),
    ("subprocess", "call", True),
    ("subprocess", "check_call", True),
    ("subprocess", "check_output", True),
    ("subprocess", "getoutput", True),
    ("subprocess", "getstatusoutput", True),
    ("subprocess:Popen", "__init__", False),
    ("os", "popen", True),
    *(("os", f"exec{form}", True) for form in ("l", "le", "lp", "lpe", "vp", "vpe")),
    *(("os", f"spawn{form}", True) for form in ("l", "le", "lp", "lpe", "v", "ve", "vp", "vpe")),
    ("pty", "fork", True),
    ("pty", "spawn", True),
    ("multiprocessing.process:BaseProcess", "start", False),
    ("concurrent.futures.process:ProcessPoolExecutor", "submit", False),
    ("asyncio.subprocess", "create_subprocess_exec", True),
    ("asyncio.subprocess", "create_subprocess_shell", True),
)
_LABELS = {
    ("subprocess:Popen", "__init__"): "subprocess.Popen",
    ("multiprocessing.process:BaseProcess", "start"): "multiprocessing.Process.start",
    ("concurrent.futures.process:ProcessPoolExecutor", "submit"): "ProcessPoolExecutor.submit",
    ("asyncio.subprocess", "create_subprocess_exec"): "asyncio.create_subprocess_exec",
    ("asyncio.subprocess", "create_subprocess_shell"): "asyncio.create_subprocess_shell",
}


_PREPARATION = 21  # where a function stands that runs in the child, before the program


def _entry(doors: Mapping[str, Any], label: str) -> Callable[[Any], Any]:
    def make(original: Any) -> Any:
        def entry(*args: Any, **kwargs: Any) -> Any:
            answer = doors["starting"](label)
            if answer is not None:
                raise as_error(answer) from None
            return original(*args, **kwargs)

        return entry

    return make


def _fork(doors: Mapping[str, Any], name: str) -> Callable[[Any], Any]:
    return _entry(doors, f"os.{name}")


def _fork_exec(doors: Mapping[str, Any]) -> Callable[[Any], Any]:
    def make(_original: Any) -> Any:
        def fork_exec(*args: Any) -> Any:
            values = list(args)
            values[0] = [plain(item) for item in values[0]]
            values[1] = tuple(_as_bytes(item) for item in values[1])
            values[2:4] = bool(values[2]), tuple(map(_number, values[3]))
            values[4] = plain(values[4])  # the folder that the child enters
            if values[5] is not None:
                values[5] = [_as_bytes(item) for item in values[5]]
            for place in range(6, len(values)):
                if place != _PREPARATION:
                    values[place] = _numbers(values[place])
            return _out(doors["fork_exec"](tuple(values)))

        return fork_exec

    return make


def _spawn(doors: Mapping[str, Any], name: str) -> Callable[[Any], Any]:
    def make(_original: Any) -> Any:
        def spawn(
            path: Any, argv: Any, env: Any, /, *, file_actions: Any = None, **kwargs: Any
        ) -> Any:
            values = (plain(path), [plain(item) for item in argv], _plain_mapping(env))
            actions = file_actions
            if actions is not None:
                actions = [tuple(plain(item) for item in action) for action in actions]
            named = {key: _numbers(value) for key, value in kwargs.items()}
            return _out(doors["spawn"](name, f"os.{name}", values, named, actions))

        return spawn

    return make


def _execve(doors: Mapping[str, Any]) -> Callable[[Any], Any]:
    def make(_original: Any) -> Any:
        def execve(path: Any, argv: Any, env: Any) -> Any:
            values = (plain(path), [plain(item) for item in argv], _plain_mapping(env))
            return _out(doors["spawn"]("execve", "os.execve", values, {}, None))

        return execve

    return make


def _execv(doors: Mapping[str, Any]) -> Callable[[Any], Any]:
    def make(_original: Any) -> Any:
        def execv(path: Any, argv: Any, /) -> Any:
            # The form with an environment, so that the runtime's variables can be put in.
            values = (plain(path), [plain(item) for item in argv], dict(os.environ))
            return _out(doors["spawn"]("execve", "os.execv", values, {}, None))

        return execv

    return make


def _system(doors: Mapping[str, Any]) -> Callable[[Any], Any]:
    def make(_original: Any) -> Any:
        def system(command: Any) -> Any:
            return _out(doors["system"](os.fsdecode(plain(command))))

        return system

    return make


def _out(answer: Any) -> Any:
    if isinstance(answer, BaseException):
        raise as_error(answer) from None
    return answer


def _number(value: Any) -> int:
    """Return a number that has no methods of its own: they would run once all is judged."""
    return index(value) + 0


def _numbers(value: Any) -> Any:
    """Return a number, several or none, likewise."""
    if value is None:
        return None
    if isinstance(value, os.sched_param):
        return os.sched_param(_number(value.sched_priority))
    if hasattr(value, "__index__"):
        return _number(value)
    found = map(_numbers, value)
    return tuple(found) if isinstance(value, tuple) else list(found)


def _as_bytes(item: Any) -> bytes:
    return os.fsencode(plain(item))


def _plain_mapping(env: Any) -> dict[Any, Any] | None:
    if env is None:
        return None  # this process's own, from 3.13 on
    return {plain(key): plain(value) for key, value in env.items()}


def process_patches(doors: Mapping[str, Any]) -> tuple[Replacement, ...]:
    """Return the rows of this area."""
    rows = [
        Replacement(
            owner, name, _entry(doors, _LABELS.get((owner, name), f"{owner}.{name}")), everywhere
        )
        for owner, name, everywhere in _ENTRY_POINTS
    ]
    makers = {
        "posix_spawn": _spawn(doors, "posix_spawn"),
        "posix_spawnp": _spawn(doors, "posix_spawnp"),
        "execve": _execve(doors),
        "execv": _execv(doors),
        "system": _system(doors),
        "fork": _fork(doors, "fork"),
        "forkpty": _fork(doors, "forkpty"),
    }
    rows += [Replacement("posix", name, make, everywhere=True) for name, make in makers.items()]
    rows.append(Replacement("_posixsubprocess", "fork_exec", _fork_exec(doors), everywhere=True))
    return tuple(rows)
