"""Ways past the guard that are known, and what holds them instead."""

# ruff: noqa: E501 - a technique reads best in one line

from __future__ import annotations

import sys

from guard.technique import LAUNCHER, MODULE, Technique

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


KNOWN_TECHNIQUES = (
    *(Technique(f"known-{name}", code, _of_known(name)) for name, code in _KNOWN.items()),
)
