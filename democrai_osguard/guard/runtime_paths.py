"""What every guarded program may touch without declaring it: Python itself and its own folders.

The interpreter, packages and system files are for reading; the application's own folders for
everything but execution. Each row says why it is here.
"""

from __future__ import annotations

import functools
import os
import sys
import sysconfig
from typing import TYPE_CHECKING

from democrai_osguard.directories import cache_dir, data_dir, state_dir, temp_dir

if TYPE_CHECKING:
    from collections.abc import Iterable

SYSTEM_READ = (
    ("/lib", "shared libraries"),
    ("/lib64", "shared libraries"),
    ("/usr/lib", "shared libraries"),
    ("/usr/lib64", "shared libraries"),
    ("/usr/local/lib", "shared libraries"),
    ("/etc/ld.so.cache", "where shared libraries are"),
    ("/usr/share/zoneinfo", "time zones"),
    ("/etc/localtime", "the local time zone"),
    ("/etc/timezone", "the local time zone"),
    ("/usr/share/locale", "locale"),
    ("/usr/share/i18n", "locale"),
    ("/etc/locale.alias", "locale"),
    ("/etc/ssl/certs", "certificates"),
    ("/etc/ssl/openssl.cnf", "how OpenSSL is set up"),
    ("/usr/share/ca-certificates", "certificates"),
    ("/usr/local/share/ca-certificates", "certificates"),
    ("/etc/ca-certificates", "certificates"),
    ("/etc/pki/tls/certs", "certificates"),
    ("/etc/pki/ca-trust", "certificates"),
    ("/etc/resolv.conf", "resolver"),
    ("/etc/hosts", "resolver"),
    ("/etc/host.conf", "resolver"),
    ("/etc/gai.conf", "resolver"),
    ("/etc/nsswitch.conf", "resolver"),
    ("/etc/services", "names of ports"),
    ("/etc/protocols", "names of protocols"),
    ("/etc/mime.types", "types of files"),
    ("/usr/share/mime", "types of files"),
    ("/dev/null", "nothing"),
    ("/dev/zero", "nothing"),
    ("/dev/full", "nothing"),
    ("/dev/random", "randomness"),
    ("/dev/urandom", "randomness"),
    ("/proc/self", "the process about itself"),
    ("/proc/cpuinfo", "how many processors there are"),
    ("/proc/meminfo", "how much memory there is"),
    ("/proc/sys/kernel/osrelease", "which kernel this is"),
    ("/sys/devices/system/cpu", "how many processors there are"),
)
SYSTEM_MODIFY = (("/dev/null", "nothing"), ("/dev/zero", "nothing"), ("/dev/full", "nothing"))
_OWN = ("read", "create", "modify", "delete")
_SCHEMES = ("stdlib", "platstdlib", "purelib", "platlib")


def runtime_rules() -> dict[str, frozenset[str]]:
    """Return the table as normal paths by operation."""
    own = data_dir(), cache_dir(), state_dir(), log_dir(), temp_dir()
    return _table(own, tuple(sys.path))


@functools.lru_cache(maxsize=16)
def _table(folders: tuple[str, ...], _path: tuple[str, ...]) -> dict[str, frozenset[str]]:
    own = _real(folders)
    reads = _real((*(path for path, _ in SYSTEM_READ), *library_roots(), _package()))
    table = {operation: set(own) for operation in _OWN}
    table["read"] |= reads | {path for path, _ in SYSTEM_READ}
    table["modify"] |= {path for path, _ in SYSTEM_MODIFY}
    return {operation: frozenset(paths) for operation, paths in table.items()}


def library_roots() -> tuple[str, ...]:
    """Return the folders of the interpreter, the standard library and the installed packages."""
    prefixes = (sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix)
    below = [os.path.join(prefix, name) for prefix in prefixes for name in ("lib", "lib64", "bin")]
    schemes = [sysconfig.get_path(name) for name in _SCHEMES]
    packages = [path for path in sys.path if path.rstrip("/").endswith(("-packages", ".zip"))]
    roots = dict.fromkeys((*below, *filter(None, schemes), *packages, f"{sys.prefix}/pyvenv.cfg"))
    return tuple(roots)


def log_dir() -> str:
    """Return the folder of the application's logs."""
    return os.environ.get("DEMOCRAI_LOG_DIR") or os.path.join(state_dir(), "log")


def _package() -> str:
    return os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def _real(paths: Iterable[str]) -> set[str]:
    return {os.path.realpath(path) for path in paths} - {"/", os.path.realpath("~")}
