"""What a technique does where nothing confines it, in words for the report."""

from __future__ import annotations

import re

from guard import technique as corpus

# The first pattern that a technique's name matches says it.
_KERNEL = (
    (r"^read another|^compare", "looks into another process"),
    (r"^write another|^limit another", "changes another process"),
    (r"^(take|trace|attach) another", "takes what another process holds"),
    (r"^read the kernel|^write to the kernel|^write kernel", "reads or sets the kernel's state"),
    (r"^open a disk", "reads the disk beneath every file's permissions"),
    (r"^(read|list)", "reads what was not granted"),
    (r"for nothing$", "learns of a file, or opens a device, that was not granted"),
    (r"^write own memory", "rewrites its own code, read-only pages too"),
    (r"descriptor that reads", "changes a file that it may only read"),
    (r"^make a (device|whiteout)", "makes a file that stands for a device"),
    (r"^(write|truncate|empty|remove|rename|make a (file|folder|link|fifo|unn)|make an unnamed)",
     "changes what was not granted"),
    (r"^(chmod|chown|utime|setxattr|file_setattr)", "changes modes, owners, times or attributes"),
    (r"^run", "starts a program that was not granted"),
    (r"signal", "signals a process outside"),
    (r"namespace|^mount|^open a (tree|file system)|^change the root", "makes a world of its own"),
    (r"^(io_uring|bpf|perf|userfaultfd|personality|32-bit)", "reaches where exploits start"),
    (r"key", "reads or keeps keys that outlive it"),
    (r"queue", "talks to other processes without a file"),
    (r"^watch", "sees what others do with files"),
    (r"^name the host", "renames the host"),
    (r"listener", "answers for the broker"),
    (r"terminal|dirty upper|line discipline", "types commands into the caller's terminal"),
    (r"^(connect|send)|socket$", "talks to somebody"),
)  # fmt: skip
_GUARD = {
    corpus.FILES: "touches a file that was not granted",
    corpus.EXECUTE: "starts a program that was not granted",
    corpus.DESCRIPTOR: "touches a file through a folder's descriptor",
    corpus.MODULE: "loads native code",
    corpus.PROCESS: "starts a process",
    corpus.ENVIRONMENT: "changes the policy of its children",
    corpus.NETWORK: "talks to somebody",
    corpus.INTROSPECTION: "takes the guard apart",
    corpus.GUARD: "leaves the guard",
    corpus.LAUNCHER: "acts below Python",
    corpus.SILENT: "learns of a file that was not granted",
}
_APART = frozenset({"frames", "resumed", "types"})  # such techniques look for the guard's own parts


def of_kernel_technique(name: str) -> str:
    """Return what it does; a technique of a new kind is described by its name alone."""
    found = (words for pattern, words in _KERNEL if re.search(pattern, name))
    return next(found, "does what its name says")


def of_guard_technique(technique: corpus.Technique) -> str:
    """Return what it does, by the refusal that meets it; some meet none, and get nothing."""
    if technique.name.partition("-")[0] in _APART:
        return _GUARD[corpus.INTROSPECTION]
    return _GUARD.get(technique.refused_with, "gets round the guard")
