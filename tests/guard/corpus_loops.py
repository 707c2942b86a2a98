"""Ways around the guard through event loops and pools of the host, which run on after it.

Each hands over work of a library: code of a technique's own would be known by itself.
"""

from __future__ import annotations

from guard.technique import FILES, SILENT, Technique

_NAMES = (
    "import asyncio, contextvars, functools, threading, types\nEmpty = contextvars.Context\n"
    "LATER.append(lambda _: PACKAGE.collected)\n"
    "collect = functools.partial(PACKAGE.collect, SECRET)\n"
    "later = functools.partial(PACKAGE.collect_for, SECRET)\n"
)
_SCHEDULED = {
    "empty-context": "OUTER.call_soon(PACKAGE.collect, SECRET, context=Empty())",
    "partial": "OUTER.call_soon(collect, context=Empty())",
    "builtin-method": "OUTER.call_soon([collect].__iter__().__next__)\n"
    "OUTER.call_soon(map(PACKAGE.collect, [SECRET]).__next__, context=Empty())",
    "call-later": "OUTER.call_later(0, collect, context=Empty())",
    "call-at": "OUTER.call_at(OUTER.time(), collect, context=Empty())",
    "threadsafe": "OUTER.call_soon_threadsafe(collect, context=Empty())",
    "from-an-empty-context": "Empty().run(OUTER.call_soon, collect)",
    "into-an-empty-context": "OUTER.call_soon(Empty().run, collect)",
    "into-an-empty-context-from-a-thread": (
        "t = threading.Thread(target=OUTER.call_soon_threadsafe, args=(Empty().run, collect))\n"
        "t.start(); t.join()"
    ),
    "context-of-the-host": "OUTER.call_soon(collect, context=SIGNAL._callbacks[-1][1])",
    "handle": "OUTER._ready.append(asyncio.Handle(collect, (), OUTER, Empty()))",
    "timer-handle": "OUTER._ready.append(asyncio.TimerHandle(0, collect, (), OUTER, Empty()))",
    "arguments-of-a-handle": (
        "a = map(PACKAGE.collect, [SECRET])\n"
        "OUTER._ready.append(asyncio.Handle(len, a, OUTER, Empty()))"
    ),
    "done-callback": "SIGNAL.add_done_callback(later, context=Empty())",
    "done-callback-by-class": "type(SIGNAL).add_done_callback(SIGNAL, later, context=Empty())",
    "done-callback-from-an-empty-context": "Empty().run(SIGNAL.add_done_callback, later)",
    "done-callback-of-a-task": (
        "t = [t for t in asyncio.all_tasks(OUTER)][0]\nt.add_done_callback(later, context=Empty())"
    ),
    "done-callback-of-mine": (
        "f = OUTER.create_future()\nf.add_done_callback(later, context=Empty())\nf.set_result(1)"
    ),
    "done-callback-in-python": (
        "f = asyncio.futures._PyFuture(loop=OUTER)\nf.add_done_callback(later, context=Empty())\n"
        "SIGNAL.add_done_callback(functools.partial(PACKAGE.call_for, f.set_result, 1))"
    ),
    "done-callback-of-the-host-for-another-future": (
        "cb, c = SIGNAL._callbacks[-1]\n"
        "OUTER.call_soon(cb, types.SimpleNamespace(result=collect), context=c)"
    ),
    "wake-up-with-another-future": (
        "cb, c = SIGNAL._callbacks[0]\n"
        "OUTER.call_soon(cb, types.SimpleNamespace(result=collect), context=c)"
    ),
}
_TASKS = {
    "create-task": "OUTER.create_task(PACKAGE.collect_after(SIGNAL, SECRET), context=Empty())",
    "task-class": (
        "asyncio.Task(PACKAGE.collect_after(SIGNAL, SECRET), loop=OUTER, context=Empty())"
    ),
    "subclass-of-task": (
        "class T(asyncio.Task): pass\n"
        "T(PACKAGE.collect_after(SIGNAL, SECRET), loop=OUTER, context=Empty())"
    ),
    "task-in-python": (
        "asyncio.tasks._PyTask(\n"
        "    PACKAGE.collect_after(SIGNAL, SECRET), loop=OUTER, context=Empty())"
    ),
    "task-from-an-empty-context": (
        "Empty().run(OUTER.create_task, PACKAGE.collect_after(SIGNAL, SECRET))"
    ),
    "task-of-a-yield": (
        "f = asyncio.sleep(0)\nOUTER.create_task(PACKAGE.collect_after(f, SECRET), context=Empty())"
    ),
    "task-in-a-context-of-the-host": (
        "c = SIGNAL._callbacks[-1][1]\n"
        "OUTER.create_task(PACKAGE.collect_after(SIGNAL, SECRET), context=c)"
    ),
    "task-begun-inside": (
        "c = PACKAGE.collect_after(SIGNAL, SECRET)\n"
        "async def main():\n    asyncio.create_task(c, context=Empty())\n"
        "    await asyncio.sleep(0)\n"
        "OUTER.run_until_complete(main())"
    ),
    "task-of-the-host-anew": (
        "t = [t for t in asyncio.all_tasks(OUTER)][0]\n"
        "t.__init__(PACKAGE.collect_after(SIGNAL, SECRET), loop=OUTER,\n"
        "           context=SIGNAL._callbacks[0][1])"
    ),
    "task-of-a-group": (
        "async def main():\n    async with asyncio.TaskGroup() as g:\n"
        "        g.create_task(PACKAGE.collect_after(asyncio.sleep(0), SECRET), context=Empty())\n"
        "try: asyncio.run(main())\nexcept* PermissionError as e: attempt(e.exceptions[0])"
    ),
    "task-of-a-runner": (
        "async def nothing(): pass\nwith asyncio.Runner() as r:\n    r.run(nothing())\n"
        "    r.run(PACKAGE.collect_after(asyncio.sleep(0), SECRET), context=Empty())"
    ),
    "wake-up-of-mine": (
        "async def main():\n    f = OUTER.create_future()\n"
        "    asyncio.create_task(PACKAGE.collect_after(f, SECRET))\n    await asyncio.sleep(0)\n"
        "    OUTER.call_soon(f._callbacks[0][0], f, context=Empty())\n"
        "    f.remove_done_callback(f._callbacks[0][0])\n    f.set_result(1)\n"
        "OUTER.run_until_complete(main())"
    ),
    "step-of-mine": (
        "OUTER.create_task(PACKAGE.collect_after(asyncio.sleep(0), SECRET))\n"
        "h = OUTER._ready.pop()\nOUTER.call_soon(h._callback, context=Empty())\ndel h"
    ),
}
_UNSEEN = {
    "no-context": "OUTER.call_soon(len, context=types.SimpleNamespace(run=later))",
}
# Tasks that start at once, from Python 3.12 on; before, they are begun inside as well.
_AT_ONCE = (
    "at_once = {'eager_start': True} if hasattr(asyncio, 'eager_task_factory') else {}\n"
    "work, options = PACKAGE.collect_after(SIGNAL, SECRET), {'loop': OUTER, 'context': Empty()}\n"
    "async def main():\n    make()\n    await asyncio.sleep(0)\n"
)
_BEGIN = "OUTER.run_until_complete(main())\ndel work"
_EAGER = {
    "eager-task": "def make(): asyncio.Task(work, **options, **at_once)\n",
    "eager-task-in-python": "def make(): asyncio.tasks._PyTask(work, **options, **at_once)\n",
    "eager-task-factory": (
        "factory = getattr(asyncio, 'eager_task_factory', type(OUTER).create_task)\n"
        "def make(): factory(OUTER, work, context=Empty())\n"
    ),
}
# The host's own code says what stopped these to nobody but its log.
_POOLS = {
    "done-callback": "FUTURE.add_done_callback(later)",
    "done-callback-by-class": "type(FUTURE).add_done_callback(FUTURE, later)",
    "initializer": (
        "import concurrent.futures as c\np = c.ThreadPoolExecutor(1, initializer=collect)\n"
        "attempt(p.submit(len, '').result)\np.shutdown()"
    ),
    "initializer-for-the-host": (
        "import concurrent.futures as c\np = c.ThreadPoolExecutor(1, initializer=collect)\n"
        "work = [functools.partial(p.submit, len, ''), p.shutdown]\n"
        "LATER.insert(0, functools.partial(PACKAGE.do_for, work))"
    ),
    "work-in-a-queue-of-mine": (
        "import concurrent.futures as c\np = c.ThreadPoolExecutor(1)\n"
        "p._work_queue.put(types.SimpleNamespace(run=later))\np.submit(len, '')\np.shutdown()"
    ),
    "worker-of-mine": (
        "import concurrent.futures.thread as c\nc._worker = later\np = c.ThreadPoolExecutor(1)\n"
        "p.submit(len, '')\np.shutdown()"
    ),
    "subclass": (
        "import concurrent.futures as c\nclass P(c.ThreadPoolExecutor):\n"
        "    def _adjust_thread_count(s):\n"
        "        t = threading.Thread(target=collect)\n        t.start(); t.join()\n"
        "P(1).submit(len, '')"
    ),
    "worker-by-hand": (
        "import concurrent.futures.thread as c\n"
        "work = types.SimpleNamespace(get=lambda *a, **k: None, get_nowait=lambda: None,\n"
        "                             put=lambda _: None)\n"
        "made = types.SimpleNamespace(initialize=collect, finalize=len)\n"
        "import inspect\nold = 'initializer' in inspect.signature(c._worker).parameters\n"
        "args = (lambda: None, work, collect, ()) if old else (lambda: None, made, work)\n"
        "t = threading.Thread(target=c._worker, args=args)\nt.start(); t.join()"
    ),
    "ticket-of-the-host": (
        "from democrai_osguard.guard.installation import doors\n"
        "from democrai_osguard.guard.patches.threads import runner\n"
        "t = FUTURE._done_callbacks[0].__closure__[-1].cell_contents\n"
        "attempt(lambda: won(t(None)))\n"
        "def use(t): runner(doors['begin'], doors['end'], t, PACKAGE.collect, (SECRET,), {})\n"
        "if FREE: collect()\nfor _ in range(2): attempt(lambda: use(t))\n"
        "again = doors['ticket'](PACKAGE.collect, (SECRET,), {}, True)\nattempt(lambda: use(again))"
    ),
}

LOOP_TECHNIQUES = (
    *(Technique(f"loop-{name}", _NAMES + code, FILES) for name, code in _SCHEDULED.items()),
    *(Technique(f"loop-{name}", _NAMES + code, FILES) for name, code in _TASKS.items()),
    *(Technique(f"pool-{name}", _NAMES + code, SILENT) for name, code in _POOLS.items()),
    *(Technique(f"loop-{name}", _NAMES + code, SILENT) for name, code in _UNSEEN.items()),
    *(
        Technique(f"loop-{name}", _NAMES + _AT_ONCE + code + _BEGIN, FILES)
        for name, code in _EAGER.items()
    ),
)
