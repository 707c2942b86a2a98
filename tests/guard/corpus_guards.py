"""Ways to a guard of one's own, and to change what later or inner guards allow."""

# ruff: noqa: E501 - a technique reads best in one line

from __future__ import annotations

from guard.technique import FILES, GUARD, SILENT, Technique

_GUARD = {
    "bypass": (
        "from democrai_osguard.guard import process_guard_bypass_context as b\n"
        "with b(): won(open(SECRET).read())"
    ),
    "wider-guard": (
        "from democrai_osguard.guard import process_guard_context as g\n"
        "with g('m', 'module', allowed_paths=['/']): won(open(SECRET).read())"
    ),
    "fresh-mcp-guard": (
        "from democrai_osguard.guard import process_guard_context as g\n"
        "with g('m', 'mcp', allowed_paths=['/']): won(open(SECRET).read())"
    ),
    "leave": (
        "import sys\nfrom democrai_osguard.guard import process_guard_context as g\n"
        "f = sys._getframe()\n"
        "while f is not None and 'the_guard' not in f.f_locals: f = f.f_back\n"
        "the = g('m', 'module') if FREE else f.f_locals['the_guard']\n"
        "if FREE: the.__enter__()\nthe.__exit__(None, None, None); won(open(SECRET).read())"
    ),
    "false-runtime": (
        "import democrai_osguard.guard as g\nsource = 'with b(): won(open(SECRET).read())'\n"
        "b = g.process_guard_bypass_context\n"
        "exec(compile(source, g.__file__, 'exec'))"
    ),
    "false-runtime-function": (
        "import types, democrai_osguard.guard as g\ndef f():\n"
        "    with g.process_guard_bypass_context(): won(open(SECRET).read())\n"
        "types.FunctionType(f.__code__.replace(co_filename=g.__file__), globals())()"
    ),
    "patched-context": (
        "import democrai_osguard.guard.contexts as c\nc.process_guard_context.__enter__ = lambda s: None\n"
        "from democrai_osguard.guard import process_guard_bypass_context as b\nwith b(): won(1)"
    ),
    "other-approvals": (
        "from democrai_osguard.guard import use_approvals\n"
        "class Yes:\n    denial = lambda *a: None\n    session_approval = lambda *a: 1\n"
        "use_approvals(Yes())\nwon(open(SECRET).read())"
    ),
}
# A wider guard, opened by whatever calls what it is handed. ENTER is how that guard is entered.
_WIDER = (
    "from democrai_osguard.guard import process_guard_context as g\n"
    "the = g('m', 'module', allowed_paths=['/'])\nENTER = the.__enter__\n"
)
# The thread that is refused says so to nobody.
_ENTERED_UNSEEN = {
    "heap-of-a-thread": (
        "import _thread, collections, functools, operator, os, shutil, time\n"
        "steps = [ENTER, functools.partial(shutil.copyfile, SECRET, IN + '/stolen')]\n"
        "work = map(operator.call, steps)\n"
        "_thread.start_new_thread(collections.deque(maxlen=0).extend, (work,))\n"
        "end = time.monotonic() + 5\n"
        "while time.monotonic() < end and not os.path.exists(IN + '/stolen'): time.sleep(0.01)\n"
        "time.sleep(0.1)\nwon(open(IN + '/stolen').read())"
    ),
}
_ENTERED = {
    "thread-run": "import threading\nthreading.Thread(target=ENTER).run()\nwon(open(SECRET).read())",
    "partial": "import functools\nfunctools.partial(ENTER)()\nwon(open(SECRET).read())",
    "map": "list(map(lambda f: f(), [ENTER]))\nwon(open(SECRET).read())",
    "exit-stack": (
        "import contextlib\nwith contextlib.ExitStack() as s:\n"
        "    s.enter_context(the)\n    won(open(SECRET).read())"
    ),
    "exit-stack-callback": (
        "import contextlib\ns = contextlib.ExitStack()\ns.callback(ENTER)\ns.close()\n"
        "won(open(SECRET).read())"
    ),
    "test-case": (
        "from unittest import case\ncase._enter_context(the, lambda *a: None)\n"
        "won(open(SECRET).read())"
    ),
    "timeit": "import timeit\ntimeit.timeit(ENTER, number=1)\nwon(open(SECRET).read())",
    "cached-property": (
        "import functools\nclass C: pass\np = functools.cached_property(lambda s: 1)\n"
        "p.func = lambda s: ENTER()\np.attrname = 'p'\np.__get__(C(), C)\nwon(open(SECRET).read())"
    ),
    "pool-of-threads": (
        "import collections, concurrent.futures as c, functools, operator, shutil\n"
        "steps = [ENTER, functools.partial(shutil.copyfile, SECRET, IN + '/stolen')]\n"
        "work = map(operator.call, steps)\n"
        "with c.ThreadPoolExecutor(1) as p:\n"
        "    attempt(lambda: p.submit(collections.deque(maxlen=0).extend, work).result())\n"
        "won(open(IN + '/stolen').read())"
    ),
    "loop-callback": (
        "import asyncio, contextvars\nasync def main():\n"
        "    c = contextvars.copy_context()\n    asyncio.get_running_loop().set_exception_handler(\n"
        "        lambda l, d: attempt(d['exception']))\n"
        "    asyncio.get_running_loop().call_soon(ENTER, context=c)\n"
        "    await asyncio.sleep(0.01)\n    return c.run(lambda: open(SECRET).read())\n"
        "won(asyncio.run(main()))"
    ),
    "loop-of-the-host": (
        "import contextvars\nc = contextvars.copy_context()\n"
        "LOOP.set_exception_handler(lambda l, d: attempt(d['exception']))\n"
        "LOOP.call_soon(ENTER, context=c)\n"
        "LOOP.call_soon(lambda: attempt(lambda: won(c.run(lambda: open(SECRET).read()))))"
    ),
    "library-of-packages": "PACKAGE.call(ENTER)\nwon(open(SECRET).read())",
    "made-by-a-library-of-packages": (
        "other = PACKAGE.call(g, 'm', 'module', allowed_paths=['/'])\n"
        "PACKAGE.call(other.__enter__)\nwon(open(SECRET).read())"
    ),
    "with-of-a-library": "PACKAGE.within(the, lambda: won(open(SECRET).read()))",
    "name-of-the-standard-library": (
        "import os\nspace = dict(the=the, SECRET=SECRET, won=won)\n"
        "exec(compile('with the: won(open(SECRET).read())', os.__file__, 'exec'), space)"
    ),
    "name-of-a-framework": (
        "space = dict(globals())\n"
        'source = \'with g("m", "module", allowed_paths=["/"]): won(open(SECRET).read())\'\n'
        "exec(compile(source, FRAMEWORK.__file__, 'exec'), space)"
    ),
    "guard-of-a-framework": "FRAMEWORK.kept.__enter__()\nwon(open(SECRET).read())",
    "guard-of-a-framework-in-a-thread": (
        "import threading\nthreading.Thread(target=FRAMEWORK.kept.__enter__).run()\n"
        "won(open(SECRET).read())"
    ),
    "guard-of-a-framework-in-a-library": (
        "PACKAGE.within(FRAMEWORK.kept, lambda: won(open(SECRET).read()))"
    ),
}
# What is changed for the guards that the host opens afterwards: AGAIN is called inside of them.
_READ_AGAIN = "\nAGAIN.append(lambda p: open(p).read())"
_CHANGED = {
    "description": (
        "import sys\nf = sys._getframe()\n"
        "while f is not None and 'the_guard' not in f.f_locals: f = f.f_back\n"
        "def change(s): s.rules = (*s.rules, ('filesystem', 'read', '/'))\n"
        "if not FREE: attempt(lambda: change(f.f_locals['the_guard']._spec))"
    ),
    "replaced-description": (
        "import sys\nf = sys._getframe()\n"
        "while f is not None and 'the_guard' not in f.f_locals: f = f.f_back\n"
        "names = [] if FREE else type(f.f_locals['the_guard']).__slots__[1:]\n"
        "for n in names: attempt(lambda: setattr(f.f_locals['the_guard'], n, lambda *a: None))"
    ),
    "borrowed-description": (
        "import sys\nf = sys._getframe()\n"
        "while f is not None and 'the_guard' not in f.f_locals: f = f.f_back\n"
        "for n in ([] if FREE else type(FRAMEWORK.kept).__slots__[1:]):\n"
        "    attempt(lambda: setattr(f.f_locals['the_guard'], n, getattr(FRAMEWORK.kept, n)))"
    ),
    "runtime-table": (
        "import democrai_osguard.guard.runtime_paths as r\n"
        "def change(): r.runtime_rules().update(read=frozenset({'/'}))\nattempt(change)"
    ),
    "runtime-rows": (
        "import democrai_osguard.guard.runtime_paths as r\n"
        "r.SYSTEM_READ += (('/', 'all'),)\nattempt(lambda: r._table.cache_clear())"
    ),
    "runtime-function": (
        "import democrai_osguard.guard.runtime_paths as r\n"
        "r.library_roots = lambda: ('/',)\nr._real = lambda p: {'/'}\n"
        "attempt(lambda: r._table.cache_clear())"
    ),
    "folder-of-packages": (
        "import os, sys\nos.symlink(OUT, IN + '/more-packages')\nsys.path.append(IN + '/more-packages')"
    ),
    "prefix": (
        "import os, sys\nos.mkdir(IN + '/p')\nos.symlink(OUT, IN + '/p/lib')\nsys.prefix = IN + '/p'\n"
        "sys.path.append('/new')"
    ),
    "install-scheme": (
        "import sys, sysconfig\n"
        "for s in sysconfig._INSTALL_SCHEMES.values(): s['purelib'] = OUT\nsys.path.append('/new')"
    ),
    "environment-mapping": (
        "import os\nos.symlink(OUT, IN + '/democrai')\n"
        "data = dict(os.environ._data.items())\ndata[b'XDG_DATA_HOME'] = IN.encode()\n"
        "os.environ._data = data"
    ),
    "environment-object": (
        "import os\nos.symlink(OUT, IN + '/democrai')\n"
        "os.environ = {**os.environ, 'XDG_DATA_HOME': IN}"
    ),
    "names-of-the-runtime": (
        "import democrai_osguard.runtime.contexts as c\nfrom democrai_osguard import Rule\n"
        "c._own_folder = lambda f: (Rule('filesystem', 'read', '/'),)"
    ),
    "names-of-the-runtime-put-back": (
        "import democrai_osguard.runtime.contexts as c\nfrom democrai_osguard import Rule\n"
        "before = c._own_folder\ndef wide(folder):\n    c._own_folder = before\n"
        "    return (Rule('filesystem', 'read', '/'),)\nc._own_folder = wide"
    ),
    "names-of-targets": (
        "import democrai_osguard.targets as t, democrai_osguard.targets.filesystem as f\n"
        "import democrai_osguard.runtime.contexts as c, democrai_osguard.guard.contexts as g\n"
        "for m in (t, f, c, g):\n"
        "    for n in ('normalize_target', 'normalize_path', 'resolve_path', 'normal_path'):\n"
        "        if hasattr(m, n): setattr(m, n, lambda *a, **k: '/')"
    ),
    "names-of-rules": (
        "from democrai_osguard.access import Rule\nold = Rule.__init__\n"
        "def wide(s, r, o, t): old(s, r, o, '/' if r == 'filesystem' else t)\nRule.__init__ = wide"
    ),
    "names-of-manifests": (
        "import democrai_osguard.runtime.contexts as c\nfrom democrai_osguard import Rule\n"
        "load = c.load_manifest\nclass M:\n    def __init__(s, m): s.m = m\n"
        "    def __getattr__(s, n): return getattr(s.m, n)\n"
        "    access = (Rule('filesystem', 'read', '/'),)\n"
        "c.load_manifest = lambda *a, **k: M(load(*a, **k))"
    ),
    "names-of-constants": (
        "import democrai_osguard.guard.contexts as c\n"
        "c._FOLDER_OPERATIONS = ()\nc.OPERATIONS = {}\n"
        "c.rules_of = lambda items: [c.Rule('filesystem', 'read', '/')]"
    ),
}
# Likewise, with what another guard of the host is opened by.
_SWAPPED = {
    "swapped-description": (
        "import sys\nfrom democrai_osguard.guard import process_guard_context as g\n"
        "f = sys._getframe()\n"
        "while f is not None and 'the_guard' not in f.f_locals: f = f.f_back\n"
        "wide = g('m', 'module', allowed_paths=['/'])\n"
        "for n in ([] if FREE else g.__slots__[1:]):\n"
        "    attempt(lambda: setattr(f.f_locals['the_guard'], n, getattr(wide, n)))"
    ),
}
# The same for a guard inside, which a framework opens when it is called.
_INNER = {
    "names-of-the-guard": (
        "import democrai_osguard.guard.contexts as c\nfrom democrai_osguard import Rule\n"
        "c._paths = lambda items: [Rule('filesystem', 'read', '/')]\n"
        "FRAMEWORK.inside(IN, lambda: won(open(SECRET).read()))"
    ),
    "names-of-the-guard-put-back": (
        "import democrai_osguard.guard.contexts as c\nfrom democrai_osguard import Rule\n"
        "before = c._paths\ndef wide(items):\n    c._paths = before\n"
        "    return [Rule('filesystem', 'read', '/')]\nc._paths = wide\n"
        "FRAMEWORK.inside(IN, lambda: won(open(SECRET).read()))"
    ),
}

GUARD_TECHNIQUES = (
    *(Technique(f"guard-{name}", code, GUARD) for name, code in _GUARD.items()),
    *(Technique(f"entered-{name}", _WIDER + code, GUARD) for name, code in _ENTERED.items()),
    *(
        Technique(f"entered-{name}", _WIDER + code, SILENT)
        for name, code in _ENTERED_UNSEEN.items()
    ),
    *(Technique(f"changed-{name}", code + _READ_AGAIN, GUARD) for name, code in _SWAPPED.items()),
    *(Technique(f"changed-{name}", code + _READ_AGAIN, FILES) for name, code in _CHANGED.items()),
    *(Technique(f"inner-{name}", code, FILES) for name, code in _INNER.items()),
)
