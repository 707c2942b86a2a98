"""Asking somebody who may be slow, may fail, and may be a function of either kind.

Nobody who is asked holds up the others: what is not asynchronous runs in a thread of its own, and
what does not end when it is told to is left behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import threading
from contextvars import copy_context
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from democrai_osguard.access import AccessRequest

R = TypeVar("R")


class Unanswered(Exception):
    """Whoever was asked ended in a way that would end the whole program."""


async def answer_of(
    who: Callable[[AccessRequest], Awaitable[object] | object],
    request: AccessRequest,
    patience: float,
) -> object:
    """Return the answer about a request; raise TimeoutError where there is none in time."""
    asking = asyncio.ensure_future(_contained(who, request))
    asking.add_done_callback(_seen)
    try:
        await asyncio.wait([asking], timeout=patience)
        if asking.done():
            return asking.result()
    finally:
        asking.cancel()  # not waited for: it may not listen
    raise TimeoutError


def _seen(asked: asyncio.Future[object]) -> None:
    """Take note of an error that comes too late for anybody."""
    if not asked.cancelled():
        asked.exception()


async def in_own_thread(work: Callable[..., R], *words: object) -> R:
    """Do blocking work without taking a place in a pool, where the next one would wait for it."""
    loop = asyncio.get_running_loop()
    found: asyncio.Future[R] = loop.create_future()

    def tell(act: Callable[[], None]) -> None:
        if not found.done():
            act()

    context = copy_context()

    def run() -> None:
        try:
            result = context.run(work, *words)
        except BaseException as error:  # noqa: BLE001 - told to whoever waits
            told = error if isinstance(error, Exception) else Unanswered(repr(error))
            answer = lambda: found.set_exception(told)  # noqa: E731 - one of two
        else:
            answer = lambda: found.set_result(result)  # noqa: E731 - likewise
        with contextlib.suppress(RuntimeError):  # the loop was closed: nobody waits any more
            loop.call_soon_threadsafe(tell, answer)

    threading.Thread(target=run, name="democrai-osguard question", daemon=True).start()
    return await found


async def _contained(
    who: Callable[[AccessRequest], Awaitable[object] | object], request: AccessRequest
) -> object:
    try:
        if _is_asynchronous(who):
            answer = who(request)
        else:
            answer = await in_own_thread(who, request)
        return await answer if inspect.isawaitable(answer) else answer
    except (SystemExit, KeyboardInterrupt) as error:
        raise Unanswered(repr(error)) from error  # else it would end the loop, and all questions


def _is_asynchronous(who: object) -> bool:
    call = getattr(who, "__call__", None)  # noqa: B004 - of the object, to see what kind it is
    return inspect.iscoroutinefunction(who) or inspect.iscoroutinefunction(call)
