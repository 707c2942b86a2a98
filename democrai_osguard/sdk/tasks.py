"""Running work from guarded code: blocking calls in threads, and child processes.

Both keep the guard. A child gets the guard's own policy as `DEMOCRAI_*` variables, whatever `env`
says, and with `sandbox.os.enabled` the operating system holds it to that policy.

    process = await sdk.tasks.run_subprocess("convert", "in.png", "out.jpg", timeout=60)
    await process.wait()
"""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from democrai_osguard.errors import ContractError, OsGuardError
from democrai_osguard.guard.installation import doors
from democrai_osguard.guard.outcome import as_error
from democrai_osguard.sdk.access import NoSubject
from democrai_osguard.sdk.process import OutputTooLarge, TaskProcess
from democrai_osguard.sdk.streams import DEVNULL, PIPE, STDOUT, Ends, opened_ends

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from democrai_osguard.sdk.streams import Stream

    Text = str | bytes | os.PathLike[str]
    P = ParamSpec("P")
    R = TypeVar("R")

__all__ = [
    "DEVNULL",
    "PIPE",
    "STDOUT",
    "LaunchRefused",
    "OutputTooLarge",
    "TaskProcess",
    "run_blocking",
    "run_subprocess",
    "run_subprocess_sync",
]

_FAILED = "failed"  # as the guard says it
_NOT_FOUND, _NOT_EXECUTABLE = 127, 126
_STREAM_LIMIT = 2**16
_log = logging.getLogger("democrai_osguard.sdk")


class LaunchRefused(OsGuardError, RuntimeError):
    """A child that was not started: the operating system would not hold it as it should."""

    code = "sandbox_launch_refused"


async def run_blocking(func: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
    """Run blocking work in a worker thread, under the guard of the code that asks for it."""
    return await asyncio.to_thread(func, *args, **kwargs)


async def run_subprocess(  # noqa: PLR0913 - as asyncio.create_subprocess_exec takes them
    program: Text,
    *args: Text,
    stdin: Stream = None,
    stdout: Stream = None,
    stderr: Stream = None,
    limit: int = _STREAM_LIMIT,
    cwd: Text | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float | None = None,  # noqa: ASYNC109 - of the process, not of this call
    max_output: int | None = None,
) -> TaskProcess:
    """Start a child process of the active subject, as `asyncio.create_subprocess_exec` does.

    After `timeout` seconds it is killed, and waiting for it raises TimeoutError. `communicate`
    reads at most `max_output` bytes, then kills it and raises OutputTooLarge.

    Raises PermissionError where the subject may not execute the program, LaunchRefused where the
    settings require more than this host can hold, and NoSubject outside of a guard. What the host
    does not hold is logged, and stands in the process's `missing`.
    """
    command = [os.fsdecode(word) for word in (program, *args)]
    folder = None if cwd is None else os.fsdecode(cwd)
    variables = None if env is None else {_name(key): str(value) for key, value in env.items()}
    with opened_ends(stdin, stdout, stderr) as ends:
        pid, missing = await asyncio.to_thread(_start, command, variables, folder, ends)
        process = TaskProcess(pid, missing, timeout, max_output)
        await process.connect(ends, limit)
    return process


def run_subprocess_sync(  # noqa: PLR0913 - as subprocess.run takes them
    program: Text,
    *args: Text,
    input: bytes | None = None,  # noqa: A002 - the name that subprocess.run has
    cwd: Text | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float | None = None,
    max_output: int | None = None,
) -> subprocess.CompletedProcess[bytes]:
    """Run a child process of the active subject to its end, and return what it wrote.

    For code without an event loop; the rules and errors are those of `run_subprocess`.
    """

    async def run() -> subprocess.CompletedProcess[bytes]:
        process = await run_subprocess(
            program, *args, stdin=DEVNULL if input is None else PIPE, stdout=PIPE, stderr=PIPE,
            cwd=cwd, env=env, timeout=timeout, max_output=max_output,
        )  # fmt: skip
        out, err = await process.communicate(input)
        command = [os.fsdecode(word) for word in (program, *args)]
        return subprocess.CompletedProcess(command, process.returncode or 0, out, err)

    return asyncio.run(run())


def _start(
    command: list[str], env: dict[str, str] | None, folder: str | None, ends: Ends
) -> tuple[int, tuple[str, ...]]:
    answer: Any = doors["start_task"](command, env, folder, ends.child) if doors else None
    if answer is None:
        raise NoSubject
    if isinstance(answer, BaseException):
        raise as_error(answer) from None
    if answer[0] == _FAILED:
        raise _failure(*answer[1:])
    pid, missing = answer
    if missing:
        _log.warning("%s: the operating system does not hold: %s", command[0], "; ".join(missing))
    return pid, missing


def _failure(code: int, line: str) -> Exception:
    if code == _NOT_FOUND:
        return FileNotFoundError(line)
    if code == _NOT_EXECUTABLE:
        return PermissionError(line)
    return LaunchRefused(f"{LaunchRefused.code}: {line}")


def _name(key: object) -> str:
    if not isinstance(key, str) or not key or "=" in key or "\0" in key:
        raise ContractError(f"{key!a} is not the name of a variable")
    return key
