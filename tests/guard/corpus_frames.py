"""Ways to the guard's own frames, and to what they hold."""

# ruff: noqa: E501 - a technique reads best in one line

from __future__ import annotations

from guard.technique import FILES, INTROSPECTION, SILENT, Technique

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

FRAME_TECHNIQUES = (
    *(Technique(f"frames-{name}", _HUNT + code, SILENT) for name, code in _FRAMES.items()),
    *(Technique(f"frames-{name}", _HUNT + code, SILENT) for name, code in _KEPT_FRAMES.items()),
    *(
        Technique(f"resumed-{name}", _HUNT + _LOOKING + code, SILENT)
        for name, code in _RESUMED.items()
    ),
    *(Technique(f"garbage-{name}", code, INTROSPECTION) for name, code in _GARBAGE.items()),
    *(Technique(f"resumed-{name}", code, FILES) for name, code in _REWRITTEN.items()),
)
