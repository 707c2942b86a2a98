"""Ways to processes, native code, the network and the environment."""

# ruff: noqa: E501 - a technique reads best in one line

from __future__ import annotations

from guard.technique import ENVIRONMENT, MODULE, NETWORK, PROCESS, Technique

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

ACT_TECHNIQUES = (
    *(Technique(f"process-{name}", code, PROCESS) for name, code in _PROCESSES.items()),
    *(Technique(f"native-{name}", code, MODULE) for name, code in _NATIVE.items()),
    *(Technique(f"network-{name}", code, NETWORK) for name, code in _NETWORK.items()),
    *(Technique(f"environment-{name}", code, ENVIRONMENT) for name, code in _ENVIRONMENT.items()),
    *(Technique(f"native-{name}", code, MODULE) for name, code in _COPIES.items()),
)
