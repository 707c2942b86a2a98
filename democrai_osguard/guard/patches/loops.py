"""Event loops: each callback runs in a context that carries the guard of whoever handed it over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from democrai_osguard.guard.outcome import as_error
from democrai_osguard.guard.patches.rows import Replacement
from democrai_osguard.guard.replacing import dress

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def _scheduled(doors: Mapping[str, Any]) -> Callable[[Any], Any]:
    scheduling = doors["scheduling"]

    def make(original: Any) -> Any:
        def __init__(  # noqa: N807 - it replaces one
            self: Any,
            callback: Any,
            args: Any,
            loop: Any,
            context: Any = None,
        ) -> None:
            context = scheduling(callback, args, context)
            if isinstance(context, BaseException):
                raise as_error(context) from None
            original(self, callback, args, loop, context)

        return __init__

    return make


def _noted(doors: Mapping[str, Any]) -> Callable[[Any], Any]:
    def make(original: Any) -> Any:
        doors["runs_callbacks"](original.__code__)
        return original

    return make


def added(doors: Mapping[str, Any]) -> Callable[[Any], Any]:
    """Return a maker of what stands for a future's `add_done_callback`."""
    adding = doors["adding"]

    def make(original: Any) -> Any:
        def add_done_callback(self: Any, fn: Any, /, *, context: Any = None) -> Any:
            context = adding(self, fn, context)
            if context is None:
                return original(self, fn)
            if isinstance(context, BaseException):
                raise as_error(context) from None
            return original(self, fn, context=context)

        return dress(add_done_callback, original)

    return make


def _kept(doors: Mapping[str, Any]) -> Callable[[Any], Any]:
    """Return a maker of what a runner begins every run with."""
    running = doors["running"]

    def make(original: Any) -> Any:
        def _lazy_init(self: Any) -> None:
            original(self)
            context = running(self._context)
            if isinstance(context, BaseException):
                raise as_error(context) from None
            self._context = context

        return _lazy_init

    return make


def _futures(doors: Mapping[str, Any]) -> Callable[[Any], Any]:
    def make(original: Any) -> Any:
        doors["know_futures"](original)
        return original

    return make


def _tasks(doors: Mapping[str, Any]) -> Callable[[Any], Any]:
    def make(original: Any) -> Any:
        doors["know_futures"](original)  # a task has its own methods
        doors["know_tasks"](original, type(_first_step(original)))
        return original

    return make


class _NoLoop:
    """Takes the first step of a task, and never runs it."""

    def __init__(self) -> None:
        self.step: Any = None

    def get_debug(self) -> bool:
        return False

    def call_soon(self, step: Any, *_args: Any, **_options: Any) -> None:
        self.step = step


async def _nothing() -> None:
    """Stand for the work of a task that never runs."""


def _first_step(task_type: Any) -> Any:
    """Return what a loop is given to start a task."""
    loop, coroutine = _NoLoop(), _nothing()
    task_type(coroutine, loop=loop)._log_destroy_pending = False  # noqa: SLF001 - it is given up
    coroutine.close()
    return loop.step


def _sourced(original: Any) -> Any:
    """Return what finds where a callback was written, for a loop that reports it.

    Of a function of ours nobody is told, and the loop must go on all the same.
    """

    def _get_function_source(func: Any) -> Any:
        try:
            return original(func)
        except PermissionError:
            return None

    return _get_function_source


def _unhurried(doors: Mapping[str, Any]) -> Callable[[Any], Any]:
    """Return a maker of an `is_running` that lets no task of a guard start before it is scheduled.

    The interpreter starts one at once where the answer is exactly True. Its context could be any,
    and nobody would have seen it.
    """
    carried = doors["carried"]

    def make(original: Any) -> Any:
        def is_running(self: Any) -> Any:
            answer = original(self)
            return int(answer) if answer is True and carried() is not None else answer

        return is_running

    return make


def loop_patches(doors: Mapping[str, Any]) -> tuple[Replacement, ...]:
    """Return the rows of this area."""
    return (
        Replacement("asyncio.events:Handle", "__init__", _scheduled(doors)),
        Replacement("asyncio.events:Handle", "_run", _noted(doors)),
        Replacement("asyncio.runners:Runner", "_lazy_init", _kept(doors)),
        Replacement("asyncio.futures:_PyFuture", "add_done_callback", added(doors)),
        Replacement("asyncio.futures", "_CFuture", _futures(doors)),
        Replacement("asyncio.tasks", "_CTask", _tasks(doors)),
        Replacement("asyncio.format_helpers", "_get_function_source", _sourced),
        Replacement("asyncio.base_events:BaseEventLoop", "is_running", _unhurried(doors)),
    )
