"""What every guarded program may touch without declaring it: Python itself and its own folders.

The interpreter, packages and system files are for reading, as they are when the guard is
installed: what guarded code does to `sys.path` opens nothing. Each row says why it is here. The
application's own folders are added in `sealed.own_folders`.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from typing import TYPE_CHECKING

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


def system_rules() -> dict[str, frozenset[str]]:
    """Return what is the same for every application as normal paths by operation."""
    reads = _real((*(path for path, _ in SYSTEM_READ), *library_roots(), _package()))
    return {
        "read": frozenset(reads | {path for path, _ in SYSTEM_READ}),
        "modify": frozenset(path for path, _ in SYSTEM_MODIFY),
    }


def library_roots() -> tuple[str, ...]:
    """Return the folders of the interpreter, the standard library and the installed packages."""
    prefixes = (sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix)
    below = [os.path.join(prefix, name) for prefix in prefixes for name in ("lib", "lib64", "bin")]
    roots = (*below, *standard_library(), *package_folders(), f"{sys.prefix}/pyvenv.cfg")
    return tuple(dict.fromkeys(roots))


def standard_library() -> tuple[str, ...]:
    """Return the folders of the standard library; those of packages may lie beneath."""
    return tuple(filter(None, map(sysconfig.get_path, ("stdlib", "platstdlib"))))


def package_folders() -> tuple[str, ...]:
    """Return the folders and archives of installed packages."""
    schemes = filter(None, map(sysconfig.get_path, ("purelib", "platlib")))
    named = (path for path in sys.path if path.rstrip("/").endswith(("-packages", ".zip")))
    return tuple(dict.fromkeys((*schemes, *named)))


def _package() -> str:
    return os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def _real(paths: Iterable[str]) -> set[str]:
    return {os.path.realpath(path) for path in paths} - {"/"}
