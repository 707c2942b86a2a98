"""Ways to files that the rules do not name."""

# ruff: noqa: E501 - a technique reads best in one line

from __future__ import annotations

from guard.technique import DESCRIPTOR, FILES, SILENT, Technique

_READERS = {
    "open": "won(open(SECRET).read())",
    "io-open": "import io; won(io.open(SECRET).read())",
    "private-io-open": "import _io; won(_io.open(SECRET).read())",
    "raw-file": "import io; won(io.FileIO(SECRET).read())",
    "raw-file-c-class": (
        "import io\nraw = io.FileIO.__mro__[1]\nwon(raw(IN + '/ok').read() == b'fine\\n')"
    ),
    "open-code": "import io; won(io.open_code(SECRET).read())",
    "os-open": "import os; won(os.read(os.open(SECRET, os.O_RDONLY), 9))",
    "posix-open": "import posix; won(posix.read(posix.open(SECRET, posix.O_RDONLY), 9))",
    "bytes-path": "won(open(SECRET.encode()).read())",
    "path-object": "import pathlib; won(pathlib.Path(SECRET).read_text())",
    "relative-path": "import os; won(open(os.path.relpath(SECRET, os.getcwd())).read())",
    "dot-dot": "won(open(IN + '/../outside/secret').read())",
    "double-slash": "won(open('//' + SECRET).read())",
    "link-in-allowed-folder": "won(open(IN + '/link').read())",
    "folder-link": "won(open(IN + '/folder/secret').read())",
    "proc-self-root": "won(open('/proc/self/root' + SECRET).read())",
    "proc-self-cwd": "import os; os.chdir(IN)\nwon(open('/proc/self/cwd/../outside/secret').read())",
    "proc-pid-root": "import os; won(open(f'/proc/{os.getpid()}/root' + SECRET).read())",
    "thread-self-root": "won(open('/proc/thread-self/root' + SECRET).read())",
    "codecs-open": "import codecs; won(codecs.open(SECRET, encoding='utf-8').read())",
    "fileinput": "import fileinput; won(''.join(fileinput.input(SECRET)))",
    "gzip-plain": "import gzip; won(gzip.open(SECRET) and 1)",
    "zipfile": "import zipfile; won(zipfile.ZipFile(OUT + '/a.zip').read('x'))",
    "tarfile": "import tarfile; won(tarfile.open(OUT + '/a.tar').getnames())",
    "sqlite": "import sqlite3; won(sqlite3.connect(OUT + '/a.db').execute('select 1').fetchall())",
    "sqlite-uri": (
        "import sqlite3\n"
        "won(sqlite3.connect('file:' + OUT + '/a.db?mode=ro', uri=True)"
        ".execute('select count(*) from t').fetchall())"
    ),
    "sqlite-uri-other-parameter": (
        "import sqlite3\n"
        "won(sqlite3.connect('file:' + OUT + '/a.db?x=mode=memory', uri=True)"
        ".execute('select count(*) from t').fetchall())"
    ),
    "sqlite-uri-two-modes": (
        "import sqlite3\n"
        "won(sqlite3.connect('file:' + OUT + '/a.db?mode=memory&mode=rw', uri=True)"
        ".execute('select count(*) from t').fetchall())"
    ),
    "runpy": "import runpy; won(runpy.run_path(OUT + '/a.py')['x'])",
    "mmap": (
        "import mmap, os\nwon(mmap.mmap(os.open(SECRET, os.O_RDONLY), 0, prot=mmap.PROT_READ)[:])"
    ),
    "sendfile": (
        "import os\nr, w = os.pipe()\n"
        "os.sendfile(w, os.open(SECRET, os.O_RDONLY), 0, 9)\nwon(os.read(r, 9))"
    ),
    "shutil-copy": "import shutil; shutil.copy(SECRET, IN + '/copy')\nwon(open(IN + '/copy').read())",
    "hard-link": "import os; os.link(SECRET, IN + '/hard')\nwon(open(IN + '/hard').read())",
    "new-symlink": "import os; os.symlink(SECRET, IN + '/new')\nwon(open(IN + '/new').read())",
    "rename-in": "import os; os.rename(OUT + '/movable', IN + '/moved')\nwon(1)",
    "raw-file-path-object": "import io, pathlib; won(io.FileIO(pathlib.Path(SECRET)).read())",
    "raw-file-lying-text": (
        "import io\nclass P(str):\n    def __str__(s): return IN + '/ok'\n"
        "    def encode(s, *a): return (IN + '/ok').encode()\nwon(io.FileIO(P(SECRET)).read())"
    ),
    "sqlite-path-object": (
        "import sqlite3, pathlib\nwon(sqlite3.Connection(pathlib.Path(OUT + '/a.db')).execute('select 1'))"
    ),
    "opener-argument": (
        "import os\nwon(open('x', opener=lambda p, f: os.open(SECRET, os.O_RDONLY)).read())"
    ),
    "str-subclass": (
        "class P(str):\n    def __eq__(self, o): return True\n"
        "    def __hash__(self): return hash(IN + '/ok')\nwon(open(P(SECRET)).read())"
    ),
    "changing-fspath": (
        "class P:\n    n = 0\n    def __fspath__(self):\n        P.n += 1\n"
        "        return IN + '/ok' if P.n == 1 else SECRET\n"
        "import io; won(io.FileIO(P().__fspath__() and SECRET).read())"
    ),
    "dev-fd": "import os; fd = os.open(SECRET, os.O_PATH)\nwon(open(f'/proc/self/fd/{fd}').read())",
    "tokenize-open": "import tokenize; won(tokenize.open(OUT + '/a.py').read())",
    "readline-include": (
        "import os, readline\nr, w = os.pipe(); kept = os.dup(2); os.dup2(w, 2); os.close(w)\n"
        "try: readline.parse_and_bind(' $include ' + SECRET)\nfinally: os.dup2(kept, 2)\n"
        "won(b'secret' in os.read(r, 999))"
    ),
    "readline-original": (
        "import readline\nf = readline.read_history_file\n"
        "for c in getattr(f, '__closure__', None) or (): f = c.cell_contents if type(c.cell_contents) is type(len) else f\n"
        "f(SECRET); won(readline.get_history_item(1))"
    ),
    "ssl-certificates": (
        "import ssl\nc = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)\n"
        "c.load_verify_locations(OUT + '/cert.pem')\nwon(c.cert_store_stats())"
    ),
}
# Code of one's own that runs between judging and acting: an argument's method, or a finalizer.
_RAW = "import io, os, gc, threading\nraw = io.FileIO if FREE else io.FileIO.__mro__[1]\n"
_SWAPPED = (
    "path = IN + '/mine'\nopen(path, 'w').close()\ndef swap():\n"
    "    def act(): os.unlink(path); os.symlink(SECRET, path)\n"
    "    t = threading.Thread(target=act); t.start(); t.join()\n    won(raw(path).read())\n"
)
_BETWEEN = {
    "index-of-buffering": _RAW
    + "path = READABLE + '/new'\nclass B:\n    def __index__(s): raw(path, 'w').close(); return -1\n"
    "try: open(path, 'w', B())\nfinally: won(os.path.exists(path))",
    "truth-of-closefd": _RAW
    + "path = READABLE + '/new'\nclass B:\n    def __index__(s): raw(path, 'w').close(); return 1\n    def __bool__(s): return bool(s.__index__())\n"
    "try: open(path, 'w', closefd=B())\nfinally: won(os.path.exists(path))",
    "index-and-another-link": _RAW
    + _SWAPPED
    + "class B:\n    def __index__(s): swap(); return -1\nopen(path, 'r', B())",
    "index-of-a-mode": _RAW + _SWAPPED + "class B:\n    def __index__(s): swap(); return 0\n"
    "for _ in range(3): open(path).close()\nos.open(path, os.O_RDONLY, B())",
    "finalizer-while-opening": _RAW
    + "path = READABLE + '/new'\nclass D:\n    def __init__(s): s.me = s\n"
    "    def __del__(s):\n        try: raw(path, 'w').close()\n        except OSError: pass\n"
    "gc.collect()\ntry:\n    for n in range(1, 60):\n        D(); gc.set_threshold(n)\n"
    "        try: open(path, 'w').close()\n        except OSError as e: last = e\n        finally: gc.set_threshold(700)\n"
    "    raise last if not FREE else OSError\nfinally: gc.set_threshold(700); gc.collect(); won(os.path.exists(path))",
    "index-of-chmod": (
        "import os\nfd = os.open(READABLE + '/text', os.O_RDONLY)\n"
        "class M:\n    def __index__(s): os.fchmod(fd, 0o777); return 0o600\n"
        "try: os.chmod(IN + '/ok', M())\nfinally: won(os.fstat(fd).st_mode & 0o777 == 0o777)"
    ),
    "index-of-chown": (
        "import os\nfd = os.open(READABLE + '/text', os.O_RDONLY)\ndone = []\n"
        "class M:\n    def __index__(s): os.fchown(fd, -1, -1); done.append(1); return -1\n"
        "try: os.chown(IN + '/ok', M(), -1)\nfinally: won(done)"
    ),
}
# Libraries that take a refusal for an absence: nothing is got, and nobody is told why.
_SWALLOWED = {
    "linecache": "import linecache; won(linecache.getline(SECRET, 1))",
    "configparser": "import configparser; won(configparser.ConfigParser().read(OUT + '/a.ini') and 1)",
    "import-from-outside": "import sys; sys.path.insert(0, OUT)\nimport a_module; won(a_module.x)",
    "zipimport": "import zipimport; won(zipimport.zipimporter(OUT + '/a.zip').get_data('x'))",
    "real-path": "import os; won(os.path.realpath(OUT + '/alias') == SECRET)",
    "path-resolve": "import pathlib; won(str(pathlib.Path(OUT + '/alias').resolve()) == SECRET)",
    "scandir-entry-inside": (
        "import os\ne = [e for e in os.scandir(IN) if e.name == 'link'][0]\n"
        "won((e if FREE else e._entry).stat())"
    ),
    "glob": "import glob; won(glob.glob(OUT + '/*'))",
    "walk": "import os; won(list(os.walk(OUT)))",
}
_PROBES = {
    "stat": "import os; won(os.stat(SECRET))",
    "posix-stat": "import posix; won(posix.stat(SECRET))",
    "lstat": "import os; won(os.lstat(SECRET))",
    "exists": "import os; won(os.path.exists(SECRET) and 1)",
    "genericpath-isfile": "import genericpath; won(genericpath.isfile(SECRET) and 1)",
    "getsize": "import os; won(os.path.getsize(SECRET))",
    "samefile": "import os; won(os.path.samefile(SECRET, SECRET) and 1)",
    "path-exists": "import pathlib; won(pathlib.Path(SECRET).exists() and 1)",
    "path-is-file": "import pathlib; won(pathlib.Path(SECRET).is_file() and 1)",
    "access": "import os; won(os.access(SECRET, os.R_OK) and 1)",
    "readlink": "import os; won(os.readlink(OUT + '/alias'))",
    "statvfs": "import os; won(os.statvfs(OUT))",
    "pathconf": "import os; won(os.pathconf(OUT, 'PC_NAME_MAX'))",
    "listdir": "import os; won(os.listdir(OUT))",
    "scandir": "import os; won(list(os.scandir(OUT)))",
    "scandir-link": "import os; won([e.stat() for e in os.scandir(IN) if e.name == 'link'][0])",
    "iterdir": "import pathlib; won(list(pathlib.Path(OUT).iterdir()))",
    "fwalk": "import os; won(list(os.fwalk(OUT))[0])",
    "xattr": "import os; won([os.listxattr(SECRET)])",
    "disk-usage": "import shutil; won(shutil.disk_usage(OUT))",
    "chdir": "import os; os.chdir(OUT); won(os.getcwd())",
}
_WRITERS = {
    "write": "open(OUT + '/new', 'w').close(); won(1)",
    "truncate-open": "open(OUT + '/victim', 'w').close(); won(1)",
    "write-through-link": "open(IN + '/victim-link', 'w').close(); won(1)",
    "append": "open(OUT + '/victim', 'a').close(); won(1)",
    "mkdir": "import os; os.mkdir(OUT + '/d'); won(1)",
    "mkfifo": "import os; os.mkfifo(OUT + '/fifo'); won(1)",
    "mknod": "import os; os.mknod(OUT + '/node'); won(1)",
    "mknod-device": (
        # The one device that an ordinary user may make.
        "import os, stat; os.mknod(IN + '/device', 0o600 | stat.S_IFCHR, 0); won(1)"
    ),
    "readline-home": (
        "import os, readline\nattempt(lambda: os.environ.update(HOME=OUT))\nreadline.add_history('x')\n"
        "readline.write_history_file(); won(os.path.exists(OUT + '/.history'))"
    ),
    "shared-memory-original": (
        "import _posixshmem as m, os\nf = m.shm_open\n"
        "for c in getattr(f, '__closure__', None) or ():\n"
        "    if type(c.cell_contents) is type(len): f = c.cell_contents\n"
        "name = f'/guard-{os.getpid()}'\nos.close(f(name, os.O_CREAT | os.O_RDWR, mode=0o600))\n"
        "m.shm_unlink(name); won(1)"
    ),
    "remove": "import os; os.remove(OUT + '/victim'); won(1)",
    "rmtree": "import shutil; shutil.rmtree(OUT + '/tree'); won(1)",
    "chmod": "import os; os.chmod(OUT + '/victim', 0o600); won(1)",
    "utime": "import os; os.utime(OUT + '/victim'); won(1)",
    "os-truncate": "import os; os.truncate(OUT + '/victim', 0); won(1)",
    "replace-over": "import os; os.replace(IN + '/ok', OUT + '/victim'); won(1)",
    "symlink-outside": "import os; os.symlink('/etc', OUT + '/l'); won(1)",
    "tempfile": "import tempfile; tempfile.mkstemp(dir=OUT); won(1)",
    "tar-extract": (
        "import tarfile; archive = tarfile.open(IN + '/evil.tar')\n"
        "archive.extraction_filter = lambda member, path: member\n"  # 3.14 would refuse by itself
        "archive.extractall(IN + '/deep'); won(1)"
    ),
    "sqlite-attach": (
        "import sqlite3\nc = sqlite3.connect(IN + '/mine.db')\n"
        'try: c.execute("attach \'" + OUT + "/a.db\' as o")\n'
        "except sqlite3.DatabaseError as e: raise PermissionError('sandbox_filesystem_denied') from e\n"
        "won(c.execute('select count(*) from o.t').fetchall())"
    ),
    "sqlite-vacuum-into": (
        "import sqlite3, os\nc = sqlite3.connect(':memory:')\nc.execute('create table t (x)')\n"
        'try: c.execute("vacuum into \'" + OUT + "/copy.db\'")\n'
        "except sqlite3.DatabaseError as e: raise PermissionError('sandbox_filesystem_denied') from e\n"
        "won(os.path.exists(OUT + '/copy.db'))"
    ),
    "sqlite-class": (
        "import sqlite3\nc = sqlite3.Connection(IN + '/mine.db')\n"
        'try: c.execute("attach \'" + OUT + "/a.db\' as o")\n'
        "except sqlite3.DatabaseError as e: raise PermissionError('sandbox_filesystem_denied') from e\n"
        "won(c.execute('select count(*) from o.t').fetchall())"
    ),
    "sqlite-subclass": (
        "import sqlite3\nclass C(sqlite3.Connection):\n    def set_authorizer(s, *a): pass\n"
        "c = sqlite3.connect(IN + '/mine.db', factory=C)\n"
        'try: c.execute("attach \'" + OUT + "/a.db\' as o")\n'
        "except sqlite3.DatabaseError as e: raise PermissionError('sandbox_filesystem_denied') from e\n"
        "won(c.execute('select count(*) from o.t').fetchall())"
    ),
    "sqlite-c-class": (
        "import sqlite3\nC = [k for k in sqlite3.Connection.__mro__ if k is not object][-1]\n"
        "c = C(IN + '/mine.db')\n"
        'try: c.execute("attach \'" + OUT + "/a.db\' as o")\n'
        "except sqlite3.DatabaseError as e: raise PermissionError('sandbox_filesystem_denied') from e\n"
        "won(c.execute('select count(*) from o.t').fetchall())"
    ),
    "sqlite-made-without-init": (
        "import sqlite3\nC = sqlite3.Connection\nB = [k for k in C.__mro__ if k is not object][-1]\n"
        "c = C.__new__(C); B.__init__(c, IN + '/mine.db')\n"
        'try: c.execute("attach \'" + OUT + "/a.db\' as o")\n'
        "except sqlite3.DatabaseError as e: raise PermissionError('sandbox_filesystem_denied') from e\n"
        "won(c.execute('select count(*) from o.t').fetchall())"
    ),
    "sqlite-attach-parameter": (
        "import sqlite3\nc = sqlite3.connect(IN + '/mine.db')\n"
        "try: c.execute('attach ? as o', (OUT + '/a.db',))\n"
        "except sqlite3.DatabaseError as e: raise PermissionError('sandbox_filesystem_denied') from e\n"
        "won(c.execute('select count(*) from o.t').fetchall())"
    ),
    "sqlite-attach-expression": (
        "import sqlite3\nc = sqlite3.connect(IN + '/mine.db')\n"
        "try: c.execute(\"attach ('\" + OUT + \"' || '/a.db') as o\")\n"
        "except sqlite3.DatabaseError as e: raise PermissionError('sandbox_filesystem_denied') from e\n"
        "won(c.execute('select count(*) from o.t').fetchall())"
    ),
    "sqlite-vacuum-into-parameter": (
        "import sqlite3, os\nc = sqlite3.connect(':memory:')\nc.execute('create table t (x)')\n"
        "try: c.execute('vacuum into ?', (OUT + '/copy.db',))\n"
        "except sqlite3.DatabaseError as e: raise PermissionError('sandbox_filesystem_denied') from e\n"
        "won(os.path.exists(OUT + '/copy.db'))"
    ),
    "sqlite-reopened": (
        "import sqlite3\nc = sqlite3.connect(IN + '/mine.db')\nc.__init__(IN + '/mine.db')\n"
        'try: c.execute("attach \'" + OUT + "/a.db\' as o")\n'
        "except sqlite3.DatabaseError as e: raise PermissionError('sandbox_filesystem_denied') from e\n"
        "won(c.execute('select count(*) from o.t').fetchall())"
    ),
    "tls-key-log": (
        "import ssl, os\nc = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)\n"
        "c.keylog_filename = READABLE + '/keys'; won('keys' in os.listdir(READABLE))"
    ),
    "logging-file": "import logging; logging.FileHandler(OUT + '/log').close(); won(1)",
    "unix-socket-bind": "import socket; socket.socket(1).bind(OUT + '/sock'); won(1)",
    "proc-self-mem": "open('/proc/self/mem', 'r+b').close(); won(1)",
}
_DESCRIPTORS = {
    "dir-fd-open": (
        "import os\nd = os.open(IN, os.O_RDONLY)\n"
        "won(os.read(os.open('../outside/secret', os.O_RDONLY, dir_fd=d), 9))"
    ),
    "dir-fd-stat": "import os\nd = os.open(IN, os.O_RDONLY)\nwon(os.stat('../outside', dir_fd=d))",
    "dir-fd-unlink": (
        "import os\nd = os.open(IN, os.O_RDONLY)\nos.unlink('../outside/victim', dir_fd=d); won(1)"
    ),
}

FILE_TECHNIQUES = (
    *(
        Technique(f"file-{name}", code, FILES)
        for name, code in (_READERS | _PROBES | _WRITERS | _BETWEEN).items()
    ),
    *(Technique(f"file-{name}", code, SILENT) for name, code in _SWALLOWED.items()),
    *(Technique(f"file-{name}", code, DESCRIPTOR) for name, code in _DESCRIPTORS.items()),
)
