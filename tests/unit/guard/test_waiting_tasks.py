"""Tasks and callbacks of an event loop: each under the guard of whoever made it, and no other.

Each check runs in a fork, because a guard cannot be uninstalled.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import gc
import shutil
import sys
import threading
import weakref
from typing import TYPE_CHECKING, Any

import pytest
from guard.confined import confined

from democrai_osguard.guard import current_guard, install, process_guard_context

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    # What a task of the application waits for, and what completes it.
    _Pair = tuple[Awaitable[object], Callable[[], object]]
    _Way = Callable[[], Coroutine[object, object, _Pair]]


def _who(*_: object) -> str | None:
    """Return the chain of whoever acts here."""
    guard = current_guard()
    return None if guard is None else " > ".join(map(str, guard.subject_chain))


def _inside(function: Callable[..., object], *args: object) -> None:
    with process_guard_context("a", "module"):
        assert _who() == "module:a"
        function(*args)


async def _event() -> _Pair:
    event = asyncio.Event()
    return event.wait(), event.set


async def _queue() -> _Pair:
    queue: asyncio.Queue[int] = asyncio.Queue()
    return queue.get(), functools.partial(queue.put_nowait, 1)


async def _future() -> _Pair:
    future = asyncio.get_running_loop().create_future()
    return future, functools.partial(future.set_result, 1)


async def _python_future() -> _Pair:
    future: Any = asyncio.futures._PyFuture(loop=asyncio.get_running_loop())  # type: ignore[attr-defined] # noqa: SLF001 - there is no public name for it
    return future, functools.partial(future.set_result, 1)


async def _shielded() -> _Pair:
    future = asyncio.get_running_loop().create_future()
    return asyncio.shield(future), functools.partial(future.set_result, 1)


async def _one_of_many() -> _Pair:
    future = asyncio.get_running_loop().create_future()
    return asyncio.gather(future), functools.partial(future.set_result, 1)


async def _in_time() -> _Pair:
    future = asyncio.get_running_loop().create_future()
    return asyncio.wait_for(future, 5), functools.partial(future.set_result, 1)


async def _lock() -> _Pair:
    lock = asyncio.Lock()
    await lock.acquire()
    return lock.acquire(), lock.release


async def _semaphore() -> _Pair:
    semaphore = asyncio.Semaphore(0)
    return semaphore.acquire(), semaphore.release


async def _from_afar() -> _Pair:
    event, loop = asyncio.Event(), asyncio.get_running_loop()
    return event.wait(), functools.partial(loop.call_soon_threadsafe, event.set)


async def _condition() -> _Pair:
    condition = asyncio.Condition()

    async def wait() -> None:
        async with condition:
            await condition.wait()

    async def notify() -> None:
        async with condition:
            condition.notify()

    return wait(), lambda: asyncio.ensure_future(notify())


async def _as_python_task() -> _Pair:
    event = asyncio.Event()
    kind: Any = asyncio.tasks._PyTask  # type: ignore[attr-defined] # noqa: SLF001 - there is no public name for it
    return kind(event.wait(), loop=asyncio.get_running_loop()), event.set


_WAYS = (
    _event, _queue, _future, _python_future, _shielded, _one_of_many, _in_time, _lock, _semaphore,
    _from_afar, _condition, _as_python_task,
)  # fmt: skip


@pytest.mark.parametrize("way", _WAYS)
def test_a_task_that_guarded_code_wakes_stays_the_applications(way: _Way) -> None:
    def check() -> object:
        found: list[str | None] = []

        async def application(waiting: Awaitable[object]) -> None:
            await waiting
            found.append(_who())
            await asyncio.sleep(0.01)
            found.append(_who())
            with process_guard_context("b", "module"):
                found.append(_who())

        async def main() -> None:
            waiting, wake = await way()
            task = asyncio.create_task(application(waiting))
            await asyncio.sleep(0.01)
            _inside(wake)
            await asyncio.wait_for(task, 5)
            found.append(_who())

        asyncio.run(main())
        return found

    assert confined(check) == [None, None, "module:b", None]


def test_whoever_awaits_a_guarded_task_stays_as_it_was() -> None:
    def check() -> object:
        async def module() -> str | None:
            with process_guard_context("a", "module"):
                await asyncio.sleep(0.01)
                return _who()

        async def main() -> list[str | None]:
            task = asyncio.create_task(module())
            both = await asyncio.gather(task, module())
            done, _ = await asyncio.wait([asyncio.create_task(module())])
            return [*both, *(each.result() for each in done), _who()]

        return asyncio.run(main())

    assert confined(check) == ["module:a"] * 3 + [None]


def test_a_task_runs_under_the_guard_of_whoever_made_it_whoever_wakes_it() -> None:
    def check() -> object:
        async def work(event: asyncio.Event, found: list[str | None]) -> None:
            await asyncio.sleep(0)
            await event.wait()
            found.append(_who())

        async def main() -> object:
            event, found = asyncio.Event(), list[Any]()
            tasks = [asyncio.create_task(work(event, found))]
            for name in ("a", "b"):
                with process_guard_context(name, "module"):
                    tasks.append(asyncio.create_task(work(event, found)))
            await asyncio.sleep(0.01)
            with process_guard_context("c", "module"):
                event.set()
            await asyncio.gather(*tasks)
            return found

        return asyncio.run(main())

    assert confined(check) == [None, "module:a", "module:b"]


def test_a_callback_of_a_future_runs_under_the_guard_of_whoever_added_it() -> None:
    def check() -> object:
        async def main() -> object:
            found: list[str | None] = []
            loop = asyncio.get_running_loop()
            kinds = (asyncio.Future, asyncio.futures._PyFuture)  # type: ignore[attr-defined] # noqa: SLF001 - there is no public name for it
            for kind in kinds:
                future: Any = kind(loop=loop)
                future.add_done_callback(lambda _: found.append(_who()))
                future.add_done_callback(
                    lambda _: found.append(_who()), context=contextvars.copy_context()
                )
                add = functools.partial(future.add_done_callback, lambda _: found.append(_who()))
                _inside(add)
                _inside(functools.partial(add, context=contextvars.Context()))
                with process_guard_context("b", "module"):
                    future.set_result(1)
                await asyncio.sleep(0.01)
            return found

        install()
        return asyncio.run(main())

    assert confined(check) == [None, None, "module:a", "module:a"] * 2


def test_a_callback_can_be_taken_back() -> None:
    def check() -> object:
        async def main() -> object:
            future = asyncio.get_running_loop().create_future()
            found: list[object] = []
            future.add_done_callback(found.append)
            removed = future.remove_done_callback(found.append)
            with process_guard_context("a", "module"):
                future.add_done_callback(found.append)
                removed += future.remove_done_callback(found.append)
                future.set_result(1)
            await asyncio.sleep(0)
            return [removed, found]

        install()
        return asyncio.run(main())

    assert confined(check) == [2, []]


def test_a_scheduled_callback_runs_under_the_guard_of_whoever_scheduled_it() -> None:
    def check() -> object:
        async def main() -> object:
            found: list[str | None] = []
            loop = asyncio.get_running_loop()

            def schedule() -> None:
                for context in (None, contextvars.Context()):
                    options: Any = {"context": context}
                    loop.call_soon(lambda: found.append(_who()), **options)
                    loop.call_later(0.01, lambda: found.append(_who()), **options)
                    loop.call_at(loop.time(), lambda: found.append(_who()), **options)
                    loop.call_soon_threadsafe(lambda: found.append(_who()), **options)

            schedule()
            await asyncio.sleep(0.03)
            free, found[:] = found.copy(), []
            _inside(schedule)
            await asyncio.sleep(0.03)
            return [free == [None] * 8, found == ["module:a"] * 8]

        return asyncio.run(main())

    assert confined(check) == [True, True]


def test_a_given_context_is_used_and_never_changed() -> None:
    def check() -> object:
        variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable")

        async def main() -> object:
            context = contextvars.Context()
            context.run(variable.set, "given")
            found: list[object] = []

            async def work() -> None:
                found.append((variable.get(), _who()))
                variable.set("changed")
                await asyncio.sleep(0)
                await asyncio.sleep(0.01)
                found.append((variable.get(), _who()))

            with process_guard_context("a", "module"):
                asyncio.get_running_loop().call_soon(
                    lambda: found.append(variable.get()), context=context
                )
                task = asyncio.get_running_loop().create_task(work(), context=context)
            await task
            return [found, context.run(_who), len(context)]

        return asyncio.run(main())

    inside = [["given", "module:a"], ["changed", "module:a"]]
    assert confined(check) == [["given", *inside], None, 1]


def test_tasks_of_a_loop_that_is_run_inside_of_a_guard_are_free_after_it() -> None:
    def check() -> object:
        async def background() -> str | None:
            for _ in range(20):
                await asyncio.sleep(0)
            return _who()

        async def module() -> str | None:
            await asyncio.sleep(0)
            return _who()

        install()
        loop = asyncio.new_event_loop()
        task = loop.create_task(background())
        with process_guard_context("a", "module"):
            inside = loop.run_until_complete(module())
        return [inside, loop.run_until_complete(task)]

    assert confined(check) == ["module:a", None]


def test_a_runner_of_the_application_is_not_left_to_a_guard() -> None:
    def check() -> object:
        async def who() -> str | None:
            await asyncio.sleep(0)
            return _who()

        with asyncio.Runner() as runner:
            found = [runner.run(who())]
            with process_guard_context("a", "module"):
                found.append(runner.run(who()))
            return [*found, runner.run(who())]

    assert confined(check) == [None, "module:a", None]


def test_nothing_is_kept_of_tasks_and_futures_that_are_gone() -> None:
    def check() -> object:
        variable: contextvars.ContextVar[object] = contextvars.ContextVar("variable")
        gone: list[Any] = []

        async def work() -> None:
            variable.set(asyncio.current_task())
            future = asyncio.get_running_loop().create_future()
            future.add_done_callback(lambda _: future)
            gone.extend(map(weakref.ref, (future, asyncio.current_task())))
            await asyncio.sleep(0)

        async def main() -> None:
            with process_guard_context("a", "module"):
                await asyncio.create_task(work())
            await asyncio.create_task(work())

        install()
        asyncio.run(main())
        gc.collect()
        return [each() for each in gone]

    assert confined(check) == [None] * 4


def test_what_is_known_of_event_loops_is_known_where_guarded_code_loads_them_first() -> None:
    def check() -> object:
        for name in [name for name in sys.modules if name.partition(".")[0] == "asyncio"]:
            del sys.modules[name]
        sys.modules.pop("_asyncio", None)
        with process_guard_context("a", "module"):
            import asyncio as fresh  # noqa: PLC0415 - that is the point

        async def main() -> object:
            future = fresh.get_running_loop().create_future()
            waiting = fresh.create_task(_waited(future))
            await fresh.sleep(0)
            _inside(future.set_result, 1)
            return [await waiting, _who()]

        return fresh.run(main())

    assert confined(check) == [None, None]


async def _waited(future: Awaitable[object]) -> str | None:
    await future
    return _who()


@pytest.mark.skipif(sys.version_info < (3, 12), reason="tasks start at once from 3.12 on")
def test_a_task_of_a_guard_is_scheduled_also_where_others_start_at_once() -> None:
    def check() -> object:
        async def work(event: asyncio.Event, found: list[Any]) -> None:
            found.append(_who())
            await event.wait()
            found.append(_who())

        async def main() -> object:
            factory: Any = vars(asyncio)["eager_task_factory"]
            asyncio.get_running_loop().set_task_factory(factory)
            event, found = asyncio.Event(), list[Any]()
            tasks = [asyncio.create_task(work(event, found))]
            found.append("free")
            with process_guard_context("a", "module"):
                tasks.append(asyncio.create_task(work(event, found)))
                found.append("guarded")
                running = asyncio.get_running_loop().is_running()
            await asyncio.sleep(0)
            _inside(event.set)
            await asyncio.gather(*tasks)
            return [found, bool(running)]

        install()
        return asyncio.run(main())

    order = [None, "free", "guarded", "module:a", None, "module:a"]
    assert confined(check) == [order, True]


def test_work_of_a_thread_of_guarded_code_wakes_the_application_as_itself() -> None:
    def check() -> object:
        async def main() -> object:
            loop, event = asyncio.get_running_loop(), asyncio.Event()
            waiting = asyncio.create_task(event.wait())
            await asyncio.sleep(0)
            thread = threading.Thread(target=loop.call_soon_threadsafe, args=(event.set,))
            _inside(thread.start)
            await waiting
            thread.join()
            return _who()

        return asyncio.run(main())

    assert confined(check) is None


def test_a_refused_callback_that_is_a_replaced_function_stops_no_loop() -> None:
    def check() -> object:
        async def main() -> object:
            loop, told = asyncio.get_running_loop(), list[str]()
            loop.set_exception_handler(lambda _, what: told.append(str(what["exception"])))
            _inside(loop.call_soon, shutil.copy, "/etc/passwd", "/dev/null")
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            return told

        return asyncio.run(main())

    (told,) = confined(check)
    assert "sandbox_filesystem_denied" in told
