"""Ways to start another program than the one that was judged, where programs may be started."""

# ruff: noqa: E501 - a technique reads best in one line

from __future__ import annotations

from guard.technique import EXECUTE, FILES, SILENT, Technique

# A program of one's own that the kernel does not start, and a script with a first line of choice.
_BROKEN = "import os, subprocess\nopen(BIN + '/true', 'wb').write(b'\\0')\nos.chmod(BIN + '/true', 0o755)\n"
_SCRIPT = (
    "import os, subprocess\ndef script(line):\n    open(BIN + '/script', 'wb').write(os.fsencode(line) + b'\\n')\n"
    "    os.chmod(BIN + '/script', 0o755)\n    return subprocess.run([BIN + '/script'], cwd=CWD).returncode\n"
    "CWD = IN\n"
)
_CANDIDATES = (
    "import _posixsubprocess as s, os, sys\ndef start(*n):\n    r, w = os.pipe()\n"
    "    a = [[b'true'], n, True, (w,), None, None, -1, -1, -1, -1, -1, -1, r, w, False, False]\n"
    "    a += [-1, None, None, None, -1, None] + ([False] if sys.version_info < (3, 14) else [])\n"
    "    return os.waitstatus_to_exitcode(os.waitpid(s.fork_exec(*a), 0)[1])\n"
)
_PROGRAMS = {
    "path-that-climbs": (
        "import subprocess\nenv = {'PATH': '/usr/bin/../..' + OUT + '/bin:/none'}\n"
        "won(subprocess.run(['true'], env=env).returncode == 1)"
    ),
    "path-that-climbs-posix-spawnp": (
        "import os\nos.environ['PATH'] = '/usr/bin/../..' + OUT + '/bin'\n"
        "won(os.waitstatus_to_exitcode(os.waitpid(os.posix_spawnp('true', ['true'], {}), 0)[1]) == 1)"
    ),
    "folder-before-a-program": (
        "import os, subprocess\nos.mkdir(BIN + '/true')\n"
        "won(subprocess.run(['true'], env={'PATH': BIN + ':' + OUT + '/bin'}).returncode == 1)"
    ),
    "candidates-of-other-names": _CANDIDATES
    + "won(start(os.fsencode(BIN + '/missing'), os.fsencode(OUT + '/bin/true')) == 1)",
    "candidates-of-a-dependency": _CANDIDATES
    + "won(start(b'/usr/bin/../..' + os.fsencode(OUT) + b'/bin/true', b'/usr/bin/true') == 1)",
    "script-of-another-env": _SCRIPT + "won(script('#!' + OUT + '/bin/env true') == 1)",
    "script-of-a-relative-program": _SCRIPT + "CWD = OUT + '/bin'\nwon(script('#!true') == 1)",
    "script-with-odd-blanks": _SCRIPT
    + "os.mkdir(BIN + '/x\\v')\nwon(script('#!' + BIN + '/x\\v/../../../outside/bin/true') == 1)",
    "script-with-an-odd-end": _SCRIPT
    + "open(BIN + '/x', 'w').close()\nos.symlink(OUT + '/bin/true', BIN + '/x\\x85')\nwon(script('#!' + BIN + '/x\\x85') == 1)",
}
_OPENED = {
    "posix-spawn-creates": (
        "import os\nact = [(os.POSIX_SPAWN_OPEN, 9, READABLE + '/new', os.O_WRONLY | os.O_CREAT, 0o600)]\n"
        "os.waitpid(os.posix_spawnp('true', ['true'], {}, file_actions=act), 0)\n"
        "won(os.path.exists(READABLE + '/new'))"
    ),
    "posix-spawn-reads": (
        "import os\nr, w = os.pipe()\n"
        "act = [(os.POSIX_SPAWN_OPEN, 0, SECRET, os.O_RDONLY, 0), (os.POSIX_SPAWN_DUP2, w, 1)]\n"
        "p = os.posix_spawnp('cat', ['cat'], {}, file_actions=act)\nos.close(w)\n"
        "won(os.read(r, 9)); os.waitpid(p, 0)"
    ),
}

# The judged program is started, or fails, and nothing else is.
_NOTHING = {
    "second-candidate": _BROKEN
    + "won(subprocess.run(['true'], env={'PATH': BIN + ':' + OUT + '/bin'}).returncode == 1)",
    "path-put-past-environ": (
        "import os\nos.putenv('PATH', OUT + '/bin')\n"
        "won(os.waitstatus_to_exitcode(os.waitpid(os.posix_spawnp('true', ['true'], {}), 0)[1]) == 1)"
    ),
}

PROGRAM_TECHNIQUES = (
    *(Technique(f"program-{name}", code, EXECUTE, starts=True) for name, code in _PROGRAMS.items()),
    *(Technique(f"program-{name}", code, FILES, starts=True) for name, code in _OPENED.items()),
    *(Technique(f"program-{name}", code, SILENT, starts=True) for name, code in _NOTHING.items()),
)
