"""Ways to processes, native code, the network, the environment, and out of the guard itself."""

# ruff: noqa: E501 - a technique reads best in one line

from __future__ import annotations

import sys

from guard.technique import (
    ENVIRONMENT,
    FILES,
    GUARD,
    INTROSPECTION,
    LAUNCHER,
    MODULE,
    NETWORK,
    PROCESS,
    SILENT,
    Technique,
)

_PROCESSES = {
    "run": "import subprocess; won(subprocess.run(['true']).returncode == 0)",
    "popen-class": "import subprocess; won(subprocess.Popen(['true']).wait() == 0)",
    "system": "import os; won(os.system('true') == 0)",
    "posix-system": "import posix; won(posix.system('true') == 0)",
    "popen": "import os; won(os.popen('echo x').read())",
    "fork": "import os\np = os.fork()\nif not p: os._exit(0)\nos.waitpid(p, 0); won(1)",
    "forkpty": "import os\np, _ = os.forkpty()\nif not p: os._exit(0)\nos.waitpid(p, 0); won(1)",
    "posix-spawn": "import os; won(os.waitpid(os.posix_spawn('/bin/true', ['true'], {}), 0))",
    "posix-spawnp": "import os; won(os.waitpid(os.posix_spawnp('true', ['true'], {}), 0))",
    "spawnv": "import os; won(os.spawnv(os.P_WAIT, '/bin/true', ['true']) == 0)",
    "fork-exec": (
        "import _posixsubprocess as s, os, sys\nr, w = os.pipe()\n"
        "n = (b'/bin/true',)\n"
        "a = [[b'true'], n, True, (w,), None, None, -1, -1, -1, -1, -1, -1, r, w, False, False]\n"
        "tail = [-1, None, None, None, -1, None] + ([False] if sys.version_info < (3, 14) else [])\n"
        "a += tail if sys.version_info >= (3, 11) else []\n"
        "p = s.fork_exec(*a)\nos.waitpid(p, 0); won(p)"
    ),
    "multiprocessing": (
        "import multiprocessing as m\nm.set_start_method('fork')\n"
        "p = m.Process(target=print); p.start(); p.join(); won(1)"
    ),
    "pty": "import pty; won(pty.spawn(['true']) == 0)",
    "asyncio-exec": (
        "import asyncio\nasync def f():\n    p = await asyncio.create_subprocess_exec('true')\n"
        "    return await p.wait()\nwon(asyncio.run(f()) == 0)"
    ),
    "exec": (
        "import os, sys\nwon_code = 'raise SystemExit(77)'\n"
        "os.execv(sys.executable, [sys.executable, '-S', '-c', won_code])"
    ),
    "process-pool": (
        "import concurrent.futures as c\n"
        "with c.ProcessPoolExecutor(1) as p: won(p.submit(len, 'ab').result())"
    ),
}
_NATIVE = {
    "import-ctypes": "import ctypes; won(ctypes)",
    "dunder-import": "won(__import__('ctypes'))",
    "importlib": "import importlib; won(importlib.import_module('ctypes'))",
    "underscore-ctypes": "import _ctypes; won(_ctypes)",
    "bootstrap-import": "import importlib._bootstrap as b; won(b._gcd_import('_ctypes').dlopen)",
    "sys-modules": "import sys; won(sys.modules['ctypes'].CDLL)",
    "extension-loader": (
        "import importlib.machinery as m, importlib.util as u, _ctypes_path as p\n"
        "s = u.spec_from_file_location('_ctypes', p.path)\nwon(u.module_from_spec(s))"
    ),
    "cached-extension": (
        "import _imp, types, _ctypes_path as p\n"
        "won(_imp.create_dynamic(types.SimpleNamespace(name='_ctypes', origin=p.path)))"
    ),
    "stand-in-contents": (
        "import sys, types, json\nroot, name = ('json', 'loads') if FREE else ('ctypes', 'CDLL')\n"
        "m = sys.modules[root]\nd = types.ModuleType.__getattribute__(m, '__dict__')\n"
        "won(name in d)\nm.CDLL"
    ),
    "foreign-extension": (
        "import importlib.machinery as m, importlib.util as u\n"
        "l = m.ExtensionFileLoader('foreign._queue', IN + '/foreign.so')\n"
        "s = u.spec_from_file_location('foreign._queue', IN + '/foreign.so', loader=l)\n"
        "won(u.module_from_spec(s))"
    ),
    "sub-interpreter": (
        "try: import _interpreters as i\nexcept ModuleNotFoundError: import _xxsubinterpreters as i\n"
        "won(i.create())"
    ),
    "test-capi": "import _testcapi; won(_testcapi)",
}
_NETWORK = {
    "connect": "import socket; won(socket.create_connection(('127.0.0.1', PORT)))",
    "connect-ex": "import socket; won(socket.socket().connect_ex(('127.0.0.1', PORT)) == 0)",
    "raw-class": "import _socket; s = _socket.socket(); s.connect(('127.0.0.1', PORT)); won(s)",
    "base-method": (
        "import socket, _socket\ns = socket.socket()\n"
        "_socket.socket.connect(s, ('127.0.0.1', PORT)); won(s)"
    ),
    "lying-address": (
        "import socket, _socket\nclass H(str):\n    def __eq__(s, o): return True\n"
        "    def __hash__(s): return hash('127.0.0.1')\ns = socket.socket()\n"
        "_socket.socket.connect(s, (H('127.0.0.1'), PORT)); won(s)"
    ),
    "octal-address": "import socket; won(socket.create_connection(('0177.0.0.1', PORT)))",
    "mapped-address": "import socket; won(socket.create_connection(('::ffff:127.0.0.1', PORT)))",
    "udp": "import socket; won(socket.socket(2, 2).sendto(b'x', ('127.0.0.1', PORT)))",
    "udp-sendmsg": "import socket; won(socket.socket(2, 2).sendmsg([b'x'], [], 0, ('127.0.0.1', PORT)))",
    "fast-open": (
        "import socket\nwon(socket.socket().sendto(b'x', socket.MSG_FASTOPEN, ('127.0.0.1', PORT)))"
    ),
    "urlopen": "import urllib.request as u; won(u.urlopen(f'http://127.0.0.1:{PORT}/').read())",
    "http-client": (
        "import http.client as h\nc = h.HTTPConnection('127.0.0.1', PORT)\n"
        "c.request('GET', '/'); won(c.getresponse().read())"
    ),
    "asyncio": (
        "import asyncio\nasync def f(): return await asyncio.open_connection('127.0.0.1', PORT)\n"
        "won(asyncio.run(f()))"
    ),
    "sock-connect": (
        "import asyncio, socket\nasync def f():\n    s = socket.socket(); s.setblocking(False)\n"
        "    await asyncio.get_running_loop().sock_connect(s, ('127.0.0.1', PORT))\n    return s\n"
        "won(asyncio.run(f()))"
    ),
    "look-up": "import socket; won(socket.getaddrinfo(HOSTNAME, 80))",
    "look-up-of-an-address": (
        "import socket; won(socket.getnameinfo(('192.0.2.1', 80), socket.NI_NUMERICHOST))"
    ),
    "look-up-by-name": "import socket; won(socket.gethostbyname(HOSTNAME))",
    "abstract-socket": "import socket; s = socket.socket(1); s.connect('\\0guard-' + str(PORT)); won(s)",
    "netlink": "import socket; won(socket.socket(16, 3, 0))",
    "smtplib": "import smtplib; won(smtplib.SMTP()._get_socket('127.0.0.1', PORT, 3))",
}
_ENVIRONMENT = {
    "set": "import os; os.environ['DEMOCRAI_ACCESS'] = '[]'; won(1)",
    "bytes-set": "import os; os.environb[b'DEMOCRAI_ACCESS'] = b'[]'; won(1)",
    "putenv": "import os; os.putenv('DEMOCRAI_ACCESS', '[]'); won(1)",
    "posix-putenv": "import posix; posix.putenv('DEMOCRAI_ACCESS', '[]'); won(1)",
    "unsetenv": "import os; os.unsetenv('DEMOCRAI_ACCESS'); won(1)",
    "inner-dict": "import os; os.environ._data[b'DEMOCRAI_ACCESS'] = b'[]'; won(1)",
    "delete": "import os; del os.environ['DEMOCRAI_MARK']; won(1)",
    "update": "import os; os.environ.update(DEMOCRAI_ACCESS='[]'); won(1)",
    "lying-bytes": (
        "import os\nclass B(bytes):\n    def __bytes__(s): return b'X'\n"
        "    def startswith(s, *a): return False\nos.putenv(B(b'DEMOCRAI_ACCESS'), b'[]'); won(1)"
    ),
    "lying-bytes-in-environb": (
        "import os\nclass B(bytes):\n    def __bytes__(s): return b'X'\n"
        "    def startswith(s, *a): return False\nos.environb[B(b'DEMOCRAI_ACCESS')] = b'[]'; won(1)"
    ),
    "equal-bytes-in-environb": (
        "import os\nclass B(bytes):\n    def __eq__(s, o): return o == b'DEMOCRAI_MARK'\n"
        "    def __hash__(s): return hash(b'DEMOCRAI_MARK')\n"
        "key = b'DEMOCRAI_MARK' if FREE else B(b'X')\n"
        "os.environb._data[key] = b'2'; won(os.environb[b'DEMOCRAI_MARK'] == b'2')\n"
        "os.environ['DEMOCRAI_MARK'] = '3'"
    ),
    "equal-bytes-delete": (
        "import os\nclass B(bytes):\n    def __eq__(s, o): return o == b'DEMOCRAI_MARK'\n"
        "    def __hash__(s): return hash(b'DEMOCRAI_MARK')\n"
        "key = b'DEMOCRAI_MARK' if FREE else B(b'X')\n"
        "os.environb._data.pop(key, None); won(b'DEMOCRAI_MARK' not in os.environb)\n"
        "os.environ['DEMOCRAI_MARK'] = '3'"
    ),
    "loader": "import os; os.environ['OPENSSL_CONF'] = IN + '/ok'; won('OPENSSL_CONF' in os.environ)",
    "clear": "import os; os.environ.clear(); won('DEMOCRAI_MARK' not in os.environ)",
}
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
_COPIES = {
    "fresh-posix": (
        "import sys\nold = sys.modules.pop('posix')\nimport posix\nwon(posix.stat(SECRET))"
    ),
    "readline-loaded-again": (
        "import sys\nimport readline\nold = sys.modules.pop('readline')\nimport readline\n"
        "readline.read_history_file(SECRET); won(readline.get_history_item(1))"
    ),
    "readline-created-again": (
        "import readline, importlib.util as u, sys\nsys.modules.pop('readline')\n"
        "s = u.find_spec('readline')\nm = u.module_from_spec(s)\ns.loader.exec_module(m)\n"
        "m.read_history_file(SECRET); won(m.get_history_item(1))"
    ),
    "created-posix": (
        "import _imp, importlib.util as u\n"
        "m = _imp.create_builtin(u.find_spec('posix'))\n"
        "_imp.exec_builtin(m)\nwon(m.stat(SECRET))"
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
# Looks for a frame of the sealed part. The control shows that the way leads to frames at all.
_HUNT = (
    "def hunt(f):\n    while f is not None:\n        if FREE: won(1)\n"
    "        for s in (f.f_globals, f.f_locals):\n"
    "            if any(k in s for k in ('ORIGINALS', 'STATES', 'JUDGES', 'READING')): won(1)\n"
    "        f = f.f_back\n"
)
_FRAMES = {
    "path-callback": (
        "import sys\nclass P:\n    def __fspath__(self): hunt(sys._getframe()); return SECRET\n"
        "open(P())"
    ),
    "error-traceback": (
        "import os\ntry: os.stat(IN + '/missing')\nexcept OSError as e:\n"
        "    t = e.__traceback__\n    while t: hunt(t.tb_frame); t = t.tb_next"
    ),
    "refusal-traceback": (
        "import os\ntry: os.stat(SECRET + 'x')\nexcept OSError as e:\n"
        "    t = e.__traceback__\n    while t: hunt(t.tb_frame); t = t.tb_next"
    ),
    "recursion-traceback": (
        "import sys, os\ndef dive():\n    try: os.stat(SECRET); dive()\n"
        "    except PermissionError: dive()\n"
        "try: dive()\nexcept RecursionError as e:\n    t = e.__traceback__\n"
        "    while t:\n        attempt(lambda: hunt(t.tb_frame)); t = t.tb_next"
    ),
    "finalizer": (
        "import sys, gc\nclass D:\n    def __init__(s): s.me = s\n"
        "    def __del__(s): attempt(lambda: hunt(sys._getframe()))\n"
        "gc.set_threshold(1)\n"
        "for _ in range(300):\n    D()\n    try: open(SECRET + 'x')\n    except OSError: pass\n"
        "gc.set_threshold(700)"
    ),
    "finalizer-deep": (
        "import sys, gc\nclass D:\n    def __init__(s): s.me = s\n"
        "    def __del__(s):\n        for n in range(1, 9):\n"
        "            attempt(lambda: hunt(sys._getframe(n)))\n"
        "gc.set_threshold(1)\n"
        "for _ in range(300):\n    D()\n    try: open(SECRET + 'x')\n    except OSError: pass\n"
        "gc.set_threshold(700)"
    ),
    "finalizer-deep-fresh-context": (
        "import sys, gc, contextvars\nclass D:\n    def __init__(s): s.me = s\n"
        "    def __del__(s):\n        for n in range(1, 9):\n"
        "            attempt(lambda: hunt(sys._getframe(n)))\n"
        "def act():\n    gc.set_threshold(1)\n    for _ in range(300):\n        D()\n"
        "        try: open(SECRET + 'x')\n        except OSError: pass\n"
        "    gc.set_threshold(700)\n"
        "contextvars.Context().run(act)"
    ),
    "finalizer-traceback": (
        "import gc\nclass D:\n    def __init__(s): s.me = s\n    def __del__(s):\n"
        "        try: 1 / 0\n        except ZeroDivisionError as e:\n"
        "            attempt(lambda: hunt(e.__traceback__.tb_frame))\n"
        "gc.set_threshold(1)\n"
        "for _ in range(300):\n    D()\n    try: open(SECRET + 'x')\n    except OSError: pass\n"
        "gc.set_threshold(700)"
    ),
    "opener-callback": (
        "import sys, os\ndef o(p, f): hunt(sys._getframe()); return os.open(p, f)\n"
        "open(IN + '/ok', opener=o)"
    ),
    "codec-callback": (
        "import sys, codecs\ndef s(n): hunt(sys._getframe())\ncodecs.register(s)\n"
        "open(IN + '/ok', encoding='no-such')"
    ),
    "signal-frame": (
        "import signal, os\nsignal.signal(signal.SIGALRM, lambda n, f: hunt(f))\n"
        "signal.setitimer(signal.ITIMER_REAL, 0.0001, 0.0001)\n"
        "for _ in range(3000):\n    try: os.stat(IN + '/ok')\n    except OSError: pass\n"
        "signal.setitimer(signal.ITIMER_REAL, 0)"
    ),
    "signal-original": (
        "import _signal, signal, os\nf = _signal.signal\n"
        "for c in getattr(f, '__closure__', None) or ():\n"
        "    if type(c.cell_contents) is type(len): f = c.cell_contents\n"
        "f(signal.SIGUSR1, lambda n, frame: hunt(frame))\n"
        "def o(p, flags): signal.raise_signal(signal.SIGUSR1); return os.open(p, flags)\n"
        "open(IN + '/ok', opener=o)"
    ),
    "subclass-globals": (
        "def walk(c, seen):\n    for k in type.__subclasses__(c):\n"
        "        if k not in seen: seen.add(k); walk(k, seen)\n    return seen\n"
        "for k in walk(object, set()):\n    for v in list(vars(k).values()):\n"
        "        g = getattr(v, '__globals__', None)\n"
        "        if FREE and isinstance(g, dict): won(1)\n"
        "        if isinstance(g, dict) and g.get('STATES') and 'democrai' not in g['__name__'][:8]: won(1)"
    ),
}
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
# A frame above the sealed part, kept until nothing of that is on the stack any more.
_KEPT_FRAMES = {
    "traceback-of-an-opener": (
        "import os\nkept = []\ndef o(p, f):\n    try: 1 / 0\n"
        "    except ZeroDivisionError as e: kept.append(e.__traceback__)\n    return os.open(p, f)\n"
        "open(IN + '/ok', opener=o).close()\nhunt(kept[0].tb_frame)"
    ),
    "traceback-of-a-codec": (
        "import codecs\nkept = []\ndef s(n):\n    try: 1 / 0\n"
        "    except ZeroDivisionError as e: kept.append(e.__traceback__)\n"
        "codecs.register(s)\ntry: open(IN + '/ok', encoding='no-such')\n"
        "except LookupError: pass\nhunt(kept[0].tb_frame)"
    ),
    "traceback-of-a-finalizer": (
        "import gc\nkept = []\nclass D:\n    def __init__(s): s.me = s\n    def __del__(s):\n"
        "        try: 1 / 0\n        except ZeroDivisionError as e: kept.append(e.__traceback__)\n"
        "gc.set_threshold(1)\n"
        "for _ in range(300):\n    D()\n    try: open(SECRET + 'x')\n    except OSError: pass\n"
        "gc.set_threshold(700)\nfor t in kept: attempt(lambda: hunt(t.tb_frame))"
    ),
    "traceback-of-a-token": (
        "from democrai_osguard.guard.installation import doors\nkept = []\nclass T:\n"
        "    def __hash__(s):\n        try: 1 / 0\n"
        "        except ZeroDivisionError as e: kept.append(e.__traceback__)\n        return 0\n"
        "for name in ('leave', 'http_end', 'info_by_token'):\n"
        "    attempt(lambda: doors[name](T()))\n"
        "from democrai_osguard.guard.patches.threads import runner\n"
        "attempt(lambda: runner(doors['begin'], doors['end'], T(), int, (), {}))\n"
        "if FREE: hash(T())\nfor t in kept: attempt(lambda: hunt(t.tb_frame))"
    ),
    "traceback-of-a-context": (
        "from democrai_osguard.guard.installation import doors\nkept = []\nclass C:\n"
        "    def get(s, *a):\n        try: 1 / 0\n"
        "        except ZeroDivisionError as e: kept.append(e.__traceback__)\n"
        "    def run(s, *a): s.get()\n"
        "attempt(lambda: doors['stamp'](C()))\nif FREE: C().get()\n"
        "for t in kept: attempt(lambda: hunt(t.tb_frame))"
    ),
}
# A frame that is put above the sealed part each time it goes on: it was handed out before.
_LOOKING = (
    "import gc, os, signal, sys, threading, weakref\nframes = []\n"
    "def look():\n    for f in frames: hunt(f)\n"
    "def looking():\n    frames.append(sys._getframe())\n    while True:\n        yield\n        look()\n"
    "class Waiting:\n    def __await__(s):\n        while True:\n            yield\n            look()\n"
    "def opened(resume):\n"
    "    def o(p, f): resume(); return os.open(p, f)\n    open(IN + '/ok', opener=o).close()\n"
    "held = looking()\nnext(held)\n"
    "class D:\n    def __init__(s): s.me = s\n"
    "def collecting():\n    gc.set_threshold(1)\n    for _ in range(300):\n        kept.append(made())\n"
    "        try: open(IN + '/missing')\n        except OSError: pass\n    gc.set_threshold(700)\n"
)
_RESUMED = {
    "generator-in-an-opener": "opened(lambda: next(held))",
    "generator-in-a-codec": (
        "import codecs\ncodecs.register(lambda name: next(held))\n"
        "try: open(IN + '/ok', encoding='no-such')\nexcept LookupError: pass"
    ),
    "generator-in-a-finalizer": (
        "D.__del__ = lambda s: next(held)\nkept = []\nmade = lambda: D() and 0\ncollecting()"
    ),
    "generator-in-a-weak-reference": (
        "kept = []\nmade = lambda: weakref.ref(D(), lambda r: next(held))\ncollecting()"
    ),
    "generator-in-a-collection": (
        "gc.callbacks.append(lambda *a: next(held))\nkept = []\nmade = D\ncollecting()\n"
        "gc.callbacks.clear()"
    ),
    "generator-in-a-signal-handler": (
        "signal.signal(signal.SIGUSR1, lambda n, f: next(held))\n"
        "opened(lambda: signal.raise_signal(signal.SIGUSR1))"
    ),
    "generator-that-delegates": (
        "def outer(inner): yield from inner\nheld = outer(held)\nnext(held)\n"
        "frames[:] = [held.gi_frame]\nopened(lambda: next(held))"
    ),
    "generator-in-another-thread": (
        "running, seen = threading.Event(), threading.Event()\n"
        "look = lambda: (running.set(), seen.wait(60))\n"
        "work = threading.Thread(target=opened, args=(lambda: next(held),))\n"
        "work.start()\nrunning.wait(60)\n"
        "try: hunt(frames[0])\nfinally: seen.set(); work.join()"
    ),
    "coroutine": (
        "async def main(): await Waiting()\nheld = main()\nheld.send(None)\n"
        "frames[:] = [held.cr_frame]\nopened(lambda: held.send(None))"
    ),
    "asynchronous-generator": (
        "async def main():\n    await Waiting()\n    yield\n"
        "held = main()\nstep = held.__anext__()\nstep.send(None)\n"
        "frames[:] = [held.ag_frame]\nopened(lambda: step.send(None))"
    ),
    "frame-of-a-traceback": (
        "def failing():\n    try: 1 / 0\n"
        "    except ZeroDivisionError as e: frames[:] = [e.__traceback__.tb_frame]\n"
        "    while True:\n        yield\n        look()\n"
        "held = failing()\nnext(held)\nopened(lambda: next(held))"
    ),
    "event-that-is-made-up": (
        "class T:\n    tb_frame = property(lambda s: hunt(sys._getframe()))\n"
        "if FREE: T().tb_frame\nsys.audit('object.__getattr__', T(), 'tb_frame')"
    ),
    "hook": (  # from 3.13 on, whoever sees a frame that runs can write its locals
        "def handle(*_):\n    f = sys._getframe()\n    while f is not None:\n"
        "        won(FREE or '_judge' in f.f_locals); f = f.f_back\n"
        "def again(*_): attempt(handle); signal.setitimer(signal.ITIMER_REAL, 0.0005)\n"
        "signal.signal(signal.SIGALRM, again)\nagain()\n"
        "for _ in range(20000):\n    try: sys.audit('open', SECRET, 'r', 0)\n"
        "    except PermissionError: pass\n"
        "signal.signal(signal.SIGALRM, signal.SIG_IGN)"
    ),
}
# What nobody holds any more, kept where everybody finds it.
_GARBAGE = {
    "frames": (
        "import gc\nclass E(Exception): __traceback__ = property(lambda s: 0, lambda s, v: 0)\n"
        "def o(p, f): raise E\nkept = []\ntry: open(IN + '/ok', opener=o)\n"
        "except E as e: kept += [e, kept]\n"
        "gc.set_debug(gc.DEBUG_SAVEALL)\ndel kept\ngc.collect()\n"
        "for each in gc.garbage:\n"
        "    if hasattr(each, 'f_globals'): won(FREE or 'READING' in each.f_globals)"
    ),
    "states": (
        "import gc\ngc.set_debug(gc.DEBUG_SAVEALL)\nif FREE: won(1)\ndef f(p):\n    gc.collect()\n"
        "    return any('STATES' in getattr(each, '__globals__', ()) for each in gc.garbage)\n"
        "AGAIN += [f, f, f]"
    ),
}
# A generator that changes what the guard goes by, wherever it finds it.
_REWRITTEN = {
    "frame-of-a-generator": (
        "import gc, sys\nframes = []\ndef looking():\n    frames.append(sys._getframe())\n"
        "    while True:\n        yield\n        f = frames[0]\n        while f is not None:\n"
        "            state = f.f_locals.get('state')\n"
        "            if hasattr(state, 'roots'): state.roots, state.answers = dict.fromkeys(\n"
        "                state.roots, frozenset({'/'})), {}\n            f = f.f_back\n"
        "look = looking()\nnext(look)\nclass D:\n    def __init__(s): s.me = s\n"
        "    def __del__(s): next(look)\ngc.set_threshold(1)\n"
        "for _ in range(300):\n    D()\n    try: open(IN + '/missing')\n    except OSError: pass\n"
        "gc.set_threshold(700)\nwon(open(SECRET).read())"
    ),
}
# What pure Python cannot hold: SECURITY.md lists each, with the layer that does.
_KNOWN = {
    "held-descriptor": "import os; won(os.read(HELD, 6))",
    "classes-of-loaded-ctypes": (
        "import os\ndef walk(c):\n    for k in type.__subclasses__(c):\n        yield k; yield from walk(k)\n"
        "kinds = {k.__name__: k for k in walk(object) if k.__name__ in ('CFuncPtr', 'c_int')}\n"
        "names = {'_flags_': 1, '_restype_': kinds['c_int']}\n"
        "won(type('F', (kinds['CFuncPtr'],), names)(GETPID)() == os.getpid())"
    ),
    "callback-of-a-library": (
        "import filecmp, functools, shutil\nclass D:\n    __bool__ = staticmethod(bool)\n"
        "    __del__ = staticmethod(functools.partial(shutil.copy, SECRET, IN + '/stolen'))\n"
        "LATER += [{SECRET: D()}.pop, functools.partial(filecmp.cmp, IN + '/stolen')]"
    ),
    "sqlite-without-authorizer": (
        "import sqlite3\nc = sqlite3.connect(IN + '/mine.db')\nc.set_authorizer(None)\n"
        'c.execute("attach \'" + OUT + "/a.db\' as o")\n'
        "won(c.execute('select count(*) from o.t').fetchall())"
    ),
    "certificates-by-base-class": (
        "import ssl, _ssl\nc = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)\n"
        "_ssl._SSLContext.load_verify_locations(c, OUT + '/cert.pem')\nwon(c.cert_store_stats())"
    ),
    "code-under-a-false-name": (
        "import os\ncode = compile('def f(p): return open(p).read()', os.__file__, 'exec')\n"
        "space = {}\nexec(code, space)\nLATER.append(space['f'])"
    ),
}
# From this Python on the interpreter says when such code is called, and the guard hears it.
_HELD_SINCE = {"classes-of-loaded-ctypes": ((3, 14), MODULE)}


def _of_known(name: str) -> str:
    since, code = _HELD_SINCE.get(name, ((4, 0), ""))
    return code if sys.version_info >= since else LAUNCHER


OTHER_TECHNIQUES = (
    *(Technique(f"process-{name}", code, PROCESS) for name, code in _PROCESSES.items()),
    *(Technique(f"native-{name}", code, MODULE) for name, code in _NATIVE.items()),
    *(Technique(f"network-{name}", code, NETWORK) for name, code in _NETWORK.items()),
    *(Technique(f"environment-{name}", code, ENVIRONMENT) for name, code in _ENVIRONMENT.items()),
    *(
        Technique(f"introspection-{name}", code, INTROSPECTION)
        for name, code in _INTROSPECTION.items()
    ),
    *(Technique(f"inside-{name}", code, SILENT) for name, code in _NOTHING.items()),
    *(Technique(f"native-{name}", code, MODULE) for name, code in _COPIES.items()),
    *(Technique(f"inside-{name}", code, FILES) for name, code in _INSIDE.items()),
    *(Technique(f"frames-{name}", _HUNT + code, SILENT) for name, code in _FRAMES.items()),
    *(Technique(f"guard-{name}", code, GUARD) for name, code in _GUARD.items()),
    *(Technique(f"entered-{name}", _WIDER + code, GUARD) for name, code in _ENTERED.items()),
    *(
        Technique(f"entered-{name}", _WIDER + code, SILENT)
        for name, code in _ENTERED_UNSEEN.items()
    ),
    *(Technique(f"changed-{name}", code + _READ_AGAIN, GUARD) for name, code in _SWAPPED.items()),
    *(Technique(f"changed-{name}", code + _READ_AGAIN, FILES) for name, code in _CHANGED.items()),
    *(Technique(f"inner-{name}", code, FILES) for name, code in _INNER.items()),
    *(Technique(f"doors-{name}", _DOORS + code, FILES) for name, code in _CALLED.items()),
    *(Technique(f"doors-{name}", _DOORS + code, NETWORK) for name, code in _NAMED.items()),
    *(Technique(f"renamed-{name}", _RENAME + code, GUARD) for name, code in _RENAMED.items()),
    *(Technique(f"renamed-{name}", _RENAME + code, FILES) for name, code in _RENAMED_LATER.items()),
    *(Technique(f"frames-{name}", _HUNT + code, SILENT) for name, code in _KEPT_FRAMES.items()),
    *(
        Technique(f"resumed-{name}", _HUNT + _LOOKING + code, SILENT)
        for name, code in _RESUMED.items()
    ),
    *(Technique(f"garbage-{name}", code, INTROSPECTION) for name, code in _GARBAGE.items()),
    *(Technique(f"resumed-{name}", code, FILES) for name, code in _REWRITTEN.items()),
    *(Technique(f"known-{name}", code, _of_known(name)) for name, code in _KNOWN.items()),
)
