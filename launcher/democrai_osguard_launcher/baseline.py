"""What every dynamically linked program needs before its first own instruction.

One table, each row with its reason. Never here: /etc/shadow, /etc/passwd, homes, ssh keys,
private keys of certificates, the sockets of other services.
"""

from __future__ import annotations

from . import landlock

READ = landlock.OPERATION_RIGHTS["read"]
RUN = landlock.OPERATION_RIGHTS["execute"]
_FILE = landlock.READ_FILE  # what the kernel takes for a file; it refuses the rights of folders
_DEVICE = landlock.READ_FILE | landlock.WRITE_FILE | landlock.TRUNCATE
_TERMINAL = _DEVICE | landlock.IOCTL_DEV

# A path that does not exist on this host is passed over: hosts differ in half of these.
RUNTIME_PATHS: tuple[tuple[str, int, str], ...] = (
    ("/lib", READ, "shared libraries"),
    ("/lib64", READ, "shared libraries"),
    ("/usr/lib", READ, "shared libraries, the standard library of Python"),
    ("/usr/lib64", READ, "shared libraries"),
    ("/usr/local/lib", READ, "locally installed libraries and packages"),
    ("/usr/share", READ, "time zones, locales, certificates, data of programs"),
    ("/usr/local/share/ca-certificates", READ, "certificates"),
    ("/etc/ld.so.cache", _FILE, "where the loader finds libraries"),
    ("/etc/ld.so.preload", _FILE, "what the operator preloads everywhere"),
    ("/etc/localtime", _FILE, "time zone"),
    ("/etc/mime.types", _FILE, "types of files, which Python reads when it is there"),
    ("/etc/timezone", _FILE, "time zone"),
    ("/etc/locale.alias", _FILE, "locale"),
    ("/etc/ssl/certs", READ, "certificates"),
    ("/etc/ssl/openssl.cnf", _FILE, "certificates"),
    ("/etc/ca-certificates", READ, "certificates"),
    ("/etc/pki/tls/certs", READ, "certificates"),
    ("/etc/pki/ca-trust/extracted", READ, "certificates"),
    ("/etc/nsswitch.conf", _FILE, "resolver"),
    ("/etc/resolv.conf", _FILE, "resolver"),
    ("/etc/host.conf", _FILE, "resolver"),
    ("/etc/hosts", _FILE, "resolver"),
    ("/etc/gai.conf", _FILE, "resolver"),
    ("/etc/services", _FILE, "resolver"),
    ("/etc/protocols", _FILE, "resolver"),
    ("/dev/null", _DEVICE, "everybody writes there"),
    ("/dev/zero", _DEVICE, "everybody reads there"),
    ("/dev/full", _DEVICE, "tests write there"),
    ("/dev/random", _FILE, "randomness"),
    ("/dev/urandom", _FILE, "randomness"),
    ("/dev/tty", _TERMINAL, "the terminal that the command was started on"),
    ("/proc/self", READ, "the command's own maps, limits and descriptors, not its children's"),
    ("/proc/cpuinfo", _FILE, "number and kind of processors"),
    ("/proc/filesystems", _FILE, "which file systems have security labels"),
    ("/proc/meminfo", _FILE, "size of memory"),
    ("/proc/stat", _FILE, "number of processors"),
    ("/proc/sys/kernel/ngroups_max", _FILE, "limits that libc asks for"),
    ("/proc/sys/vm/overcommit_memory", _FILE, "what allocators ask for"),
    ("/sys/devices/system/cpu", READ, "number of processors"),
    # Code in a readable file can be mapped and run with or without these: see SECURITY.md.
    ("/lib64/ld-linux-x86-64.so.2", RUN, "the dynamic loader, without which nothing starts"),
    ("/lib/ld-linux-aarch64.so.1", RUN, "the dynamic loader, without which nothing starts"),
    ("/lib/ld-musl-x86_64.so.1", RUN, "the dynamic loader, without which nothing starts"),
    ("/lib/ld-musl-aarch64.so.1", RUN, "the dynamic loader, without which nothing starts"),
)
LOADERS = tuple(path for path, rights, _ in RUNTIME_PATHS if rights == RUN)
