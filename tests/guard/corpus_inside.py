"""Ways out through what the interpreter shares: introspection, callbacks, finalizers, libraries."""

# ruff: noqa: E501 - a technique reads best in one line

from __future__ import annotations

from guard.technique import FILES, INTROSPECTION, SILENT, Technique

_INTROSPECTION = {
    "gc-objects": "import gc; won(gc.get_objects())",
    "gc-referents": "import gc, os; won(gc.get_referents(os.stat))",
    "gc-referrers": "import gc, os; won(gc.get_referrers(os.stat))",
    "trace": "import sys; sys.settrace(print); won(1)",
    "profile": "import sys; sys.setprofile(print); won(1)",
    "current-frames": "import sys; won(sys._current_frames())",
    "wrapper-code": "import democrai_osguard.guard.wrappers as w; won(w.plain.__code__)",
    "wrapper-defaults": "import democrai_osguard.guard.wrappers as w; won([w.plain.__kwdefaults__])",
    "new-wrapper-code": (
        "import democrai_osguard.guard.wrappers as w\nw.plain.__code__ = (lambda path: path).__code__\n"
        "won(1)"
    ),
}
# The interpreter itself drops the refusal, or there is simply nothing to find.
_NOTHING = {
    "second-hook": (
        "import sys\nseen = []\nsys.addaudithook(lambda e, a: seen.append(e))\nexec('1')\nwon(seen)"
    ),
    "changed-doors": (
        "import _thread, time\ndone = []\n"
        "def mine(doors):\n    return lambda f, a: doors['carried']() or f(*a)\n"
        "start = mine({'carried': lambda: None}) if FREE else _thread.start_new_thread\n"
        "for c in start.__closure__ or ():\n    if hasattr(c.cell_contents, 'keys'):\n"
        "        c.cell_contents['carried'] = (lambda: won(1)) if FREE else (lambda: None)\n"
        "def f():\n    attempt(lambda: won(not FREE and open(SECRET).read()))\n    done.append(1)\n"
        "start(f, ())\nwhile not done: time.sleep(0.01)"
    ),
    "lying-spec": (
        "import _imp, _ctypes_path as p\nclass S:\n    origin = p.path\n    asked = 0\n"
        "    @property\n    def name(s):\n        S.asked += 1\n"
        "        return '_csv' if S.asked == 1 and not FREE else '_ctypes'\nwon(_imp.create_dynamic(S()))"
    ),
    "wrapped": (
        "import functools, os\nw = functools.wraps(os.stat)(lambda p: None) if FREE else os.stat\n"
        "won(w.__wrapped__(SECRET))"
    ),
}
_INSIDE = {
    "closure": (
        "import os\ndef mine(f): return lambda p: f and None\n"
        "def use(r): (attempt if isinstance(r, BaseException) else won)(r)\n"
        "for c in (mine(os.stat) if FREE else os.stat).__closure__:\n    f = c.cell_contents\n"
        "    if isinstance(f, type): continue\n"
        "    for args in ((SECRET,), (SECRET, None, True, True)):\n"
        "        attempt(lambda: use(f(*args)))"
    ),
    "handed-out-callback": "LATER.append(lambda p: open(p).read())",
    "handed-out-generator": (
        "def g():\n    yield open(SECRET).read()\nmade = g()\nLATER.append(lambda p: next(made))"
    ),
    "late-destructor": (
        "class D:\n    def __del__(self): attempt(lambda: won(open(SECRET).read()))\n"
        "kept = [D()]\nLATER.append(lambda p: kept.clear())"
    ),
    "fresh-context": "import contextvars; won(contextvars.Context().run(lambda: open(SECRET).read()))",
    "emptied-context": (
        "import contextvars\n"
        "for v in contextvars.copy_context(): v.set(None)\nwon(open(SECRET).read())"
    ),
    "forged-token": (
        "import contextvars\nclass T:\n    def __eq__(s, o): return True\n"
        "    def __hash__(s): return 0\n"
        "for v in contextvars.copy_context(): v.set(T())\nwon(open(SECRET).read())"
    ),
    "raw-thread": (
        "import _thread, time\ndone = []\ndef f():\n"
        "    attempt(lambda: won(open(SECRET).read()))\n    done.append(1)\n"
        "_thread.start_new_thread(f, ())\nwhile not done: time.sleep(0.01)"
    ),
    "thread": (
        "import threading\nt = threading.Thread(target=lambda: attempt(lambda: won(open(SECRET).read())))\n"
        "t.start(); t.join()"
    ),
    "thread-pool": (
        "import concurrent.futures as c\n"
        "with c.ThreadPoolExecutor(1) as p: won(p.submit(lambda: open(SECRET).read()).result())"
    ),
    "timer": (
        "import threading\nt = threading.Timer(0, lambda: attempt(lambda: won(open(SECRET).read())))\n"
        "t.start(); t.join()"
    ),
    "to-thread": (
        "import asyncio\nwon(asyncio.run(asyncio.to_thread(lambda: open(SECRET).read())))"
    ),
    "fresh-context-task": (
        "import asyncio, contextvars\nasync def f(): return open(SECRET).read()\n"
        "async def main():\n"
        "    return await asyncio.get_running_loop().create_task(f(), context=contextvars.Context())\n"
        "won(asyncio.run(main()))"
    ),
    "call-soon-context": (
        "import asyncio, contextvars\nasync def main():\n"
        "    asyncio.get_running_loop().call_soon("
        "lambda: attempt(lambda: won(open(SECRET).read())), context=contextvars.Context())\n"
        "    await asyncio.sleep(0.01)\nasyncio.run(main())"
    ),
    "destructor": (
        "class D:\n    def __del__(self): attempt(lambda: won(open(SECRET).read()))\nD()"
    ),
    "weakref-finalize": (
        "import weakref\nclass D: pass\nd = D()\n"
        "weakref.finalize(d, lambda: attempt(lambda: won(open(SECRET).read())))\ndel d"
    ),
    "signal-handler": (
        "import signal, os\n"
        "signal.signal(signal.SIGUSR1, lambda *a: attempt(lambda: won(open(SECRET).read())))\n"
        "signal.raise_signal(signal.SIGUSR1)"
    ),
    "reload-os": ("import importlib, os, posix\nimportlib.reload(os)\nwon(os.stat(SECRET))"),
    "reload-io": "import importlib, io\nimportlib.reload(io)\nwon(io.open(SECRET).read())",
    "subclasses": (
        "import io\nfor c in object.__subclasses__():\n    if c.__name__ == '_IOBase':\n"
        "        raw = [k for k in c.__subclasses__() if k.__name__ == '_RawIOBase'][0]\n"
        "        won([k for k in raw.__subclasses__() if k.__name__ == 'FileIO'][0](SECRET).read())"
    ),
    "patched-policy": (
        "from democrai_osguard.policy import chain, ruleset\nfrom democrai_osguard import Rule\n"
        "ruleset.RuleSet.find = lambda *a: Rule('filesystem', 'read', '/')\n"
        "chain.Chain.find = lambda *a: 1\nwon(open(SECRET).read())"
    ),
    "patched-private-policy": (
        "def walk(c, seen):\n"
        "    for k in type.__subclasses__(c):\n"
        "        if k not in seen:\n            seen.add(k); walk(k, seen)\n    return seen\n"
        "for k in walk(object, set()):\n"
        "    if 'democrai' in str(k.__module__) or 'sealed' in str(k.__module__):\n"
        "        for n in ('find', 'covers', 'first'):\n"
        "            if n in vars(k): type.__setattr__(k, n, lambda *a: True)\nwon(open(SECRET).read())"
    ),
    "patched-builtins": (
        "import builtins\nbuiltins.isinstance = lambda *a: False\nbuiltins.type = lambda *a: int\n"
        "import io\nwon(io.FileIO(SECRET).read())"
    ),
    "patched-module": (
        "import democrai_osguard.guard.outcome as o, democrai_osguard.guard.sealed.answers as a\n"
        "a.covered = lambda *x: True\no.Callers.is_library = lambda *x: True\nwon(open(SECRET).read())"
    ),
    "swallowed-error": (
        "import democrai_osguard.guard.wrappers as w\nw.as_error = lambda e: StopIteration()\n"
        "try: won(open(SECRET).read())\nexcept StopIteration: raise PermissionError("
        "'sandbox_filesystem_denied') from None"
    ),
    "recursion-limit": (
        "import sys\ndef dive(n):\n    try: won(open(SECRET).read())\n"
        "    except RecursionError: return\n    except PermissionError: pass\n    dive(n + 1)\n"
        "sys.setrecursionlimit(150)\ndive(0)\nsys.setrecursionlimit(1000)\nopen(SECRET)"
    ),
}

INSIDE_TECHNIQUES = (
    *(
        Technique(f"introspection-{name}", code, INTROSPECTION)
        for name, code in _INTROSPECTION.items()
    ),
    *(Technique(f"inside-{name}", code, SILENT) for name, code in _NOTHING.items()),
    *(Technique(f"inside-{name}", code, FILES) for name, code in _INSIDE.items()),
)
