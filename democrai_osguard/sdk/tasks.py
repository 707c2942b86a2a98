"""Running work from guarded code: blocking calls in threads, and child processes.

Both keep the guard. A child gets the guard's own policy as `DEMOCRAI_*` variables, whatever `env`
says, and with `sandbox.os.enabled` the operating system holds it to that policy.

    process = await sdk.tasks.run_subprocess("convert", "in.png", "out.jpg", timeout=60)
    await process.wait()
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import signal
import subprocess
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from democrai_osguard.errors import ContractError, OsGuardError
from democrai_osguard.guard.installation import doors
from democrai_osguard.guard.outcome import as_error
from democrai_osguard.sdk.access import NoSubject
from democrai_osguard.sdk.inheritance import check_others, joined, kept
from democrai_osguard.sdk.limits import STREAM_LIMIT, Limits
from democrai_osguard.sdk.process import OutputTooLarge, TaskProcess
from democrai_osguard.sdk.streams import DEVNULL, PIPE, STDOUT, Ends, opened_ends

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

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
    limit: int = STREAM_LIMIT,
    cwd: Text | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float | None = None,  # noqa: ASYNC109 - of the process, not of this call
    max_output: int | None = None,
    supervised: bool = False,
    ask_timeout: float = 120.0,
    start_new_session: bool = False,
    process_group: int | None = None,
    pass_fds: Sequence[int] = (),
    **others: object,
) -> TaskProcess:
    """Start a child process of the active subject, as `asyncio.create_subprocess_exec` does.

    After `timeout` seconds it is killed, and waiting for it raises TimeoutError. `communicate`
    reads at most `max_output` bytes, then kills it and raises OutputTooLarge.

    With `supervised`, an act on files that no rule allows waits in the child: it becomes a pending
    request of the subject and session, and no answer within `ask_timeout` seconds is a no.

    The `others` that asyncio takes are refused where they say anything else than it does anyway.

    Raises PermissionError where the subject may not execute the program, LaunchRefused where the
    settings require more than this host can hold, and NoSubject outside of a guard. What the host
    does not hold is logged, and stands in the process's `missing`.
    """
    command = [os.fsdecode(word) for word in (program, *args)]
    folder = None if cwd is None else os.fsdecode(cwd)
    variables = None if env is None else {_name(key): _text(env[key]) for key in env}
    patience = _patience(ask_timeout) if supervised else None
    limits = Limits(timeout, max_output, limit)
    check_others(others)
    group = joined(start_new_session=start_new_session, process_group=process_group)
    keep = kept(pass_fds)
    with opened_ends(stdin, stdout, stderr) as ends:
        work = (command, variables, folder, ends.child, patience, keep, group)
        start = asyncio.to_thread(_start, *work)
        pid, missing = await _all_of(start, _end)
        return await _all_of(_connected(pid, missing, limits, ends), TaskProcess.end)


def run_subprocess_sync(  # noqa: PLR0913 - as subprocess.run takes them
    program: Text,
    *args: Text,
    input: bytes | None = None,  # noqa: A002 - the name that subprocess.run has
    cwd: Text | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float | None = None,
    max_output: int | None = None,
    supervised: bool = False,
    ask_timeout: float = 120.0,
    start_new_session: bool = False,
    process_group: int | None = None,
    pass_fds: Sequence[int] = (),
) -> subprocess.CompletedProcess[bytes]:
    """Run a child process of the active subject to its end, and return what it wrote.

    For code without an event loop; the rules and errors are those of `run_subprocess`.
    """

    async def run() -> subprocess.CompletedProcess[bytes]:
        process = await run_subprocess(
            program, *args, stdin=DEVNULL if input is None else PIPE, stdout=PIPE, stderr=PIPE,
            cwd=cwd, env=env, timeout=timeout, max_output=max_output,
            supervised=supervised, ask_timeout=ask_timeout, pass_fds=pass_fds,
            start_new_session=start_new_session, process_group=process_group,
        )  # fmt: skip
        try:
            out, err = await process.communicate(input)
        except BaseException:  # nobody else can end it
            await _whole(asyncio.ensure_future(process.end()))
            raise
        command = [os.fsdecode(word) for word in (program, *args)]
        return subprocess.CompletedProcess(command, process.returncode or 0, out, err)

    return asyncio.run(run())


async def _all_of(work: Awaitable[R], undo: Callable[[R], Awaitable[None] | None]) -> R:
    """Wait for work; broken off meanwhile, undo what it has done and pass that on.

    A thread cannot be broken off, and what it was given must stay open until it is done.
    """
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        with contextlib.suppress(Exception):  # nothing was started: nothing is to be undone
            undone = undo(await _whole(task))
            if undone is not None:
                await _whole(asyncio.ensure_future(undone))
        raise


async def _whole(task: asyncio.Future[R]) -> R:
    """Wait for the end of a task, however often somebody loses patience."""
    while not task.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait([task])
    return task.result()


async def _connected(pid: int, missing: tuple[str, ...], limits: Limits, ends: Ends) -> TaskProcess:
    try:
        process = TaskProcess(pid, missing, limits)
    except BaseException:
        _end((pid, missing))
        raise
    try:
        await process.connect(ends)
    except BaseException:
        await process.end()
        raise
    return process


def _end(started: tuple[int, tuple[str, ...]]) -> None:
    """End and reap a child that nobody knows of, and what it has started."""
    doors["end_task"](started[0])
    with contextlib.suppress(ProcessLookupError, ChildProcessError):
        os.kill(started[0], signal.SIGKILL)
        os.waitpid(started[0], 0)


def _start(command: list[str], *rest: object) -> tuple[int, tuple[str, ...]]:
    start = doors["start_task"] if doors else None
    answer: Any = start(command, *rest) if start else None
    if answer is None:
        raise NoSubject
    if isinstance(answer, BaseException):
        raise as_error(answer) from None
    if answer[0] == _FAILED:
        raise _failure(command[0], *answer[1:])
    pid, missing = answer
    if missing:
        _log.warning("%s: the operating system does not hold: %s", command[0], "; ".join(missing))
    return pid, missing


def _failure(name: str, code: int, line: str, number: int) -> Exception:
    if number and code in {_NOT_FOUND, _NOT_EXECUTABLE}:
        return OSError(number, os.strerror(number), name)  # as subprocess says it
    if code == _NOT_FOUND:
        return FileNotFoundError(line)
    if code == _NOT_EXECUTABLE:
        return PermissionError(line)
    return LaunchRefused(f"{LaunchRefused.code}: {line}")


def _patience(seconds: float) -> float:
    if not 0 < seconds < math.inf:
        raise ContractError(f"ask_timeout: {seconds!r} is no time to wait")
    return float(seconds)


def _text(value: object) -> str:
    return os.fsdecode(value) if isinstance(value, bytes) else str(value)


def _name(key: object) -> str:
    key = os.fsdecode(key) if isinstance(key, bytes) else key
    if not isinstance(key, str) or not key or "=" in key or "\0" in key:
        raise ContractError(f"{key!a} is not the name of a variable")
    return key
