"""Pools of threads: each piece of work under the guard of whoever handed it over.

Each check runs in a fork, because a guard cannot be uninstalled.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import functools
import gc
import threading
import weakref
from multiprocessing.pool import ThreadPool
from typing import TYPE_CHECKING, Any

import pytest
from guard.confined import confined

from democrai_osguard import sdk
from democrai_osguard.guard import current_guard, process_guard_context

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine


def _who(*_: object) -> str | None:
    """Return the chain of whoever acts here."""
    guard = current_guard()
    return None if guard is None else " > ".join(map(str, guard.subject_chain))


def _born_inside(**options: Any) -> concurrent.futures.ThreadPoolExecutor:  # noqa: ANN401 - as the pool takes them
    """Return a pool of the application's whose one thread was started by guarded code."""
    pool = concurrent.futures.ThreadPoolExecutor(1, **options)
    with process_guard_context("a", "module"):
        assert pool.submit(_who).result() == "module:a"
    return pool


def test_work_of_each_runs_as_its_own_in_a_thread_that_guarded_code_started() -> None:
    def check() -> object:
        pool = _born_inside()
        found = [pool.submit(_who).result()]
        with process_guard_context("b", "module"):
            found.append(pool.submit(_who).result())

        def nested() -> str | None:
            with process_guard_context("c", "module"):
                return _who()

        return [*found, pool.submit(nested).result(), pool.submit(_who).result()]

    assert confined(check) == [None, "module:b", "module:c", None]


def test_what_the_applications_work_hands_on_is_the_applications() -> None:
    def check() -> object:
        pool = _born_inside()
        found: list[str | None] = []

        def start() -> None:
            thread = threading.Thread(target=lambda: found.append(_who()))
            thread.start()
            thread.join()

        async def main() -> None:
            loop, done = asyncio.get_running_loop(), asyncio.Event()

            def note() -> None:
                found.append(_who())
                done.set()

            def schedule() -> None:
                loop.call_soon_threadsafe(note)

            await loop.run_in_executor(pool, schedule)
            await done.wait()
            await asyncio.sleep(0.01)

        pool.submit(start).result()
        asyncio.run(main())
        return found

    assert confined(check) == [None, None]


WAYS: dict[str, Callable[[ThreadPool], Any]] = {
    "apply": lambda pool: pool.apply(_who),
    "apply_async": lambda pool: pool.apply_async(_who).get(),
    "map": lambda pool: pool.map(_who, [1])[0],
    "starmap": lambda pool: pool.starmap(_who, [(1,)])[0],
    "imap": lambda pool: next(pool.imap(_who, [1])),
    "imap in chunks": lambda pool: next(iter(pool.imap(_who, [1, 2], chunksize=2))),
    "imap_unordered": lambda pool: next(pool.imap_unordered(_who, [1])),
    "what is drawn": lambda pool: next(pool.imap(str, (_who() for _ in "x"))),
    "callback": lambda pool: _called_back(pool, str),
    "error callback": lambda pool: _called_back(pool, int),
}


def _called_back(pool: ThreadPool, function: Callable[[str], object]) -> str | None:
    found: list[str | None] = []
    done = threading.Event()

    def note(_: object) -> None:
        found.append(_who())
        done.set()

    pool.map_async(function, ["x"], callback=note, error_callback=note)
    done.wait(5)
    return found[0]


@pytest.mark.parametrize("way", WAYS)
def test_an_older_thread_pool_works_under_the_guard_of_whoever_hands_over(way: str) -> None:
    def check() -> object:
        with ThreadPool(1) as pool:
            pool.apply(_who)
            with process_guard_context("a", "module"):
                inside = WAYS[way](pool)
            return [inside, pool.apply(_who)]

    assert confined(check) == ["module:a", None]


def test_a_callback_runs_under_the_guard_of_whoever_added_it() -> None:
    def check() -> object:
        pool = _born_inside()
        found: list[str | None] = []
        go, done = threading.Event(), threading.Event()
        future = pool.submit(go.wait, 5)
        future.add_done_callback(lambda _: found.append(_who()))
        with process_guard_context("b", "module"):
            future.add_done_callback(lambda _: found.append(_who()))
        future.add_done_callback(lambda each: found.append(str(each is future)))
        future.add_done_callback(lambda _: done.set())
        go.set()
        done.wait(5)
        future.add_done_callback(lambda _: found.append(_who()))
        return found

    assert confined(check) == [None, "module:b", "True", None]


def test_a_callback_of_the_application_is_its_own_where_guarded_code_completes_the_future() -> None:
    def check() -> object:
        found: list[str | None] = []
        future: concurrent.futures.Future[int] = concurrent.futures.Future()
        with process_guard_context("a", "module"):
            pass
        future.add_done_callback(lambda _: found.append(_who()))
        space: dict[str, Any] = {"future": future}
        with process_guard_context("a", "module"):
            exec("def complete(): future.set_result(1)", space)  # noqa: S102 - what guarded code would do
            space["complete"]()
            found.append(_who())
        return found

    assert confined(check) == [None, "module:a"]


def test_an_initializer_runs_under_the_guard_of_whoever_made_the_pool() -> None:
    def check() -> object:
        found: list[object] = []
        with process_guard_context("b", "module"):
            theirs = concurrent.futures.ThreadPoolExecutor(
                1, initializer=lambda: found.append(_who())
            )
        for pool in (
            _born_inside(initializer=lambda *args: found.append([_who(), *args]), initargs=(1, 2)),
            theirs,
        ):
            pool.submit(len, "").result()
        return found

    assert confined(check) == [[None, 1, 2], "module:b"]


async def _in_a_thread() -> None:
    await asyncio.to_thread(len, "")


async def _in_an_executor() -> None:
    await asyncio.get_running_loop().run_in_executor(None, len, "")


async def _blocking() -> None:
    await sdk.tasks.run_blocking(len, "")


async def _looked_up() -> None:
    await asyncio.get_running_loop().getaddrinfo("127.0.0.1", 80)


async def _asked() -> None:
    with contextlib.suppress(RuntimeError):  # nobody answers
        await sdk.access.check_external_access_async(
            resource_type="filesystem", operation="read", target="/srv/x"
        )


@pytest.mark.parametrize("way", [_in_a_thread, _in_an_executor, _blocking, _looked_up, _asked])
def test_the_application_goes_on_as_itself_after_a_pool_that_a_guard_began(
    way: Callable[[], Coroutine[object, object, None]],
) -> None:
    def check() -> object:
        async def main() -> object:
            with process_guard_context("a", "module", allowed_targets=["127.0.0.1"]):
                await way()
                found = [_who()]
            for _ in range(3):
                await way()
                found.append(_who())
            with process_guard_context("b", "module"):
                return [*found, _who()]

        return asyncio.run(main())

    assert confined(check) == ["module:a", None, None, None, "module:b"]


def test_nothing_is_kept_of_work_that_is_over_or_was_never_done() -> None:
    def check() -> object:
        class Thing:
            pass

        pool, go = _born_inside(), threading.Event()
        gone: list[weakref.ref[Any]] = []

        def submitted() -> concurrent.futures.Future[Any]:
            thing = Thing()
            gone.append(weakref.ref(thing))
            future = pool.submit(lambda _: None, thing)
            future.add_done_callback(functools.partial(_who, thing))
            gone.append(weakref.ref(future))
            return future

        waiting = pool.submit(go.wait, 5)
        submitted().cancel()
        last = submitted()
        go.set()
        waiting.result()
        last.result()
        pool.submit(len, "").result()
        del last
        at_once = [each() is None for each in gone]
        gc.collect()
        return [at_once, [each() is None for each in gone]]

    assert confined(check) == [[True] * 4, [True] * 4]


def test_a_thread_that_guarded_code_starts_runs_all_work_as_its_own() -> None:
    def check() -> object:
        import queue  # noqa: PLC0415 - in the child only

        jobs: queue.SimpleQueue[Any] = queue.SimpleQueue()
        found: list[str | None] = []
        done = threading.Event()

        def work() -> None:
            while (job := jobs.get()) is not None:
                job()
            done.set()

        with process_guard_context("a", "module"):
            threading.Thread(target=work, daemon=True).start()
        jobs.put(lambda: found.append(_who()))
        jobs.put(None)
        done.wait(5)
        return found

    assert confined(check) == ["module:a"]
