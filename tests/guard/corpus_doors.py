"""Ways to the guard by its doors, and by code under another's name."""

# ruff: noqa: E501 - a technique reads best in one line

from __future__ import annotations

from guard.technique import FILES, GUARD, NETWORK, Technique

# The functions behind the wrappers, called with arguments of one's own choice.
_DOORS = "from democrai_osguard.guard.installation import doors\n"
_CALLED = {
    "enter-without-a-frame": (
        "from types import SimpleNamespace as N\n"
        "spec = N(subject='m', kind='module', rules=(('filesystem', 'read', '/'),), imports=(),\n"
        "    subprocess=True, include=False, runtime={}, identity=(None,) * 4, only_network=False,\n"
        "    before=(), guarded=False, makers=frozenset())\n"
        "for a in ((spec, None), (spec,)): attempt(lambda: FREE or doors['enter'](*a))\n"
        "won(open(SECRET).read())"
    ),
    "described-by-hand": (
        "class C: pass\nc = C()\nrule = ('filesystem', 'read', '/')\n"
        "fields = ('module', 'm', (rule,), (), (None,) * 4, (True, False, False), ())\n"
        "attempt(lambda: doors['describe'](c, *fields))\nattempt(lambda: FREE or doors['enter'](c))\n"
        "won(open(SECRET).read())"
    ),
    "empty-touches": (
        "import os\ndef call(name, *a):\n    answer = doors['call'](name, *a)\n"
        "    if isinstance(answer, BaseException): raise PermissionError(*answer.args)\n"
        "    return answer\n"
        "for a in (((), [OUT + '/alias'], {}, False), ([OUT + '/alias'], {}, False)):\n"
        "    attempt(lambda: won(os.readlink(OUT + '/alias') if FREE else call('readlink', *a)))"
    ),
    "other-touches": (
        "import os\ndef call(name, *a):\n    answer = doors['call'](name, *a)\n"
        "    if isinstance(answer, BaseException): raise PermissionError(*answer.args)\n"
        "    return answer\n"
        "touches = (('read', 1, 'path', 'name'),)\n"
        "attempt(lambda: won(os.listdir(OUT) if FREE else call('listdir', touches, [OUT], {}, 0)))\n"
        "os.listdir(OUT)"
    ),
    "leave-with-a-frame": (
        "import sys\nf = sys._getframe()\n"
        "while f is not None and 'the_guard' not in f.f_locals: f = f.f_back\n"
        "handle = None if FREE else f.f_locals['the_guard']._handle\n"
        "for a in ((handle, f), (handle, None), (handle,)):\n"
        "    attempt(lambda: FREE or doors['leave'](*a))\nwon(open(SECRET).read())"
    ),
    "bypass-with-a-frame": (
        "import sys\nfrom democrai_osguard.guard import wrappers\n"
        "def call():\n    class P(str): pass\n    return 1\n"
        "for a in ((sys._getframe(),), (None,), ()): attempt(lambda: FREE or doors['bypass'](*a))\n"
        "won(open(SECRET).read())"
    ),
    "runner-of-a-bypass": (
        "import collections, functools, operator, shutil\n"
        "from democrai_osguard.guard import process_guard_bypass_context as b\n"
        "from democrai_osguard.guard.patches.threads import runner\n"
        "steps = [b().__enter__, functools.partial(shutil.copyfile, SECRET, IN + '/stolen')]\n"
        "work = map(operator.call, steps)\n"
        "attempt(lambda: runner(lambda t: None, lambda: None, None, "
        "collections.deque(maxlen=0).extend, (work,), {}))\n"
        "attempt(lambda: open(SECRET).read())\nwon(open(IN + '/stolen').read())"
    ),
    "runner-of-a-bypass-deep-down": (
        "import collections, copy, functools, operator, shutil\n"
        "from democrai_osguard.guard import process_guard_bypass_context as b\n"
        "from democrai_osguard.guard.patches.threads import runner\n"
        "steps = [b().__enter__, functools.partial(shutil.copyfile, SECRET, IN + '/stolen')]\n"
        "work = map(operator.call, steps)\n"
        "run = functools.partial(runner, lambda t: None, lambda: None, None, "
        "collections.deque(maxlen=0).extend, (work,), {})\n"
        "for _ in range(40): run = functools.partial(PACKAGE.call, run)\n"
        "attempt(run)\nattempt(lambda: open(SECRET).read())\nwon(open(IN + '/stolen').read())"
    ),
    "callbacks-of-another": (
        "attempt(lambda: FREE or doors['runs_callbacks']((lambda: 0).__code__))\n"
        "won(open(SECRET).read())"
    ),
    "attribute-of-any-module": (
        "import sys\nopen(IN + '/planted.py', 'w').write('import sys\\nf = sys._getframe()')\n"
        "sys.path.insert(0, IN)\n"
        "answer = __import__('planted').f if FREE else doors['attribute']('planted', 'f')\n"
        "f = answer if hasattr(answer, 'f_back') else None\n"
        "if FREE: won(f)\n"
        "while f is not None:\n    won('ORIGINALS' in f.f_globals); f = f.f_back\n"
        "open(SECRET)"
    ),
}
# A name that may be reached, told to have any address. NAME_RULE is what the host declares.
_NAMED = {
    "looked-up": (
        "import socket\nattempt(lambda: FREE or doors['looked_up']('allowed.example', ['127.0.0.1']))\n"
        "won(socket.create_connection(('127.0.0.1', PORT), 5))"
    ),
    "looked-up-by-a-fake": (
        "import _socket, socket\nfound = [(2, 1, 6, '', ('127.0.0.1', PORT))]\n"
        "def all(f):\n    for c in f.__closure__ or ():\n"
        "        if callable(c.cell_contents) and 'getaddrinfo' in str(c.cell_contents):\n"
        "            c.cell_contents = lambda *a, **k: found\n"
        "attempt(lambda: all(_socket.getaddrinfo))\n"
        "attempt(lambda: socket.getaddrinfo('allowed.example', PORT))\n"
        "won(socket.create_connection(('127.0.0.1', PORT), 5))"
    ),
}
# Code that is renamed once it is known.
_RENAME = (
    "import _imp\ndef named(f, name):\n    _imp._fix_co_filename(f.__code__, name)\n    return f\n"
)
_RENAMED = {
    "as-the-runtime": (
        "import democrai_osguard.guard as g\ndef f():\n"
        "    with g.process_guard_bypass_context() as b: won(open(SECRET).read())\n"
        "def h():\n    process_guard_bypass_context = None\n    return f()\n"
        "named(f, g.__file__)()"
    ),
    "as-the-runtime-to-enter": (
        "import democrai_osguard.guard as g\ndef f():\n"
        "    with g.process_guard_context('m', 'module', allowed_paths=['/']): won(open(SECRET).read())\n"
        "named(f, g.__file__)()"
    ),
    "as-the-host": (
        "import democrai_osguard.guard as g\nhost = 'laboratory.py'\ndef f():\n"
        "    with g.process_guard_context('m', 'module', allowed_paths=['/']): won(open(SECRET).read())\n"
        "named(f, host)()"
    ),
    "twice": (
        "import os, democrai_osguard.guard as g\nsource = 'def f():\\n"
        "    with g.process_guard_bypass_context(): won(open(SECRET).read())'\n"
        "space = dict(globals())\nexec(compile(source, os.__file__, 'exec'), space)\n"
        "named(space['f'], g.__file__)()"
    ),
    "function-made-of-it": (
        "import types, democrai_osguard.guard as g\ndef f():\n"
        "    with g.process_guard_bypass_context(): won(open(SECRET).read())\n"
        "made = types.FunctionType(f.__code__.replace(co_name='x'), globals())\n"
        "named(made, g.__file__)()"
    ),
    "with-another-compiler": (
        "import builtins, democrai_osguard.guard as g, democrai_osguard.guard.assembly as a\n"
        "space = dict(globals())\n"
        "code = compile('with g.process_guard_bypass_context(): won(open(SECRET).read())', g.__file__, 'exec')\n"
        "old = builtins.compile\na.compile = builtins.compile = lambda *x, **k: code\n"
        "try: exec(code, space)\nfinally: builtins.compile = old"
    ),
}
_RENAMED_LATER = {
    "handed-out": "def f(p): return open(p).read()\nLATER.append(named(f, 'laboratory.py'))",
    "handed-out-as-a-library": (
        "import os\ndef f(p): return open(p).read()\nLATER.append(named(f, os.__file__))"
    ),
    "handed-out-beneath-a-library": (
        "import functools\ndef f(p): return functools.reduce(\n"
        "    lambda run, _: functools.partial(PACKAGE.call, run), range(40), functools.partial("
        "PACKAGE.read, p))()\nLATER.append(f)"
    ),
    "in-a-fake-handle": (
        "import asyncio, contextvars, functools\nclass H:\n"
        "    _context, _args, _source_traceback = contextvars.Context(), (), None\n"
        "    class _loop:\n"
        "        call_exception_handler = staticmethod(lambda d: attempt(d['exception']))\n"
        "        get_debug = staticmethod(bool)\n"
        "run = functools.partial(PACKAGE.collect, SECRET)\n"
        "for _ in range(40): run = functools.partial(PACKAGE.call, run)\n"
        "h = H()\nh._callback = run\nasyncio.events.Handle._run(h)\nwon(PACKAGE.collected)"
    ),
}

DOOR_TECHNIQUES = (
    *(Technique(f"doors-{name}", _DOORS + code, FILES) for name, code in _CALLED.items()),
    *(Technique(f"doors-{name}", _DOORS + code, NETWORK) for name, code in _NAMED.items()),
    *(Technique(f"renamed-{name}", _RENAME + code, GUARD) for name, code in _RENAMED.items()),
    *(Technique(f"renamed-{name}", _RENAME + code, FILES) for name, code in _RENAMED_LATER.items()),
)
