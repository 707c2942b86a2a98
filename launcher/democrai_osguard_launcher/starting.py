"""Programs that are started, as the broker sees them: by what will really run.

Landlock judges the file, its interpreters and its loader, each when the kernel opens it, so that
the call may always go on. What it cannot tell is a loader that the kernel opens for a program from
a loader that is itself started, to map any file that can be read; nor does it see files that no
folder holds. These two are refused here.

The caller's other threads may change what the call points to after it was looked at. So there is a
second look, at a call that every loader makes before it runs anything of the file that it has
mapped: which program runs by then is a fact of the kernel's, and what must not is ended.
"""

from __future__ import annotations

import errno
import os
import stat

from . import notification
from .brokered import GoOn
from .caller import AT_FDCWD, look_up, real_path
from .program import shebang
from .rules import beneath

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections.abc import Callable, Iterable, Mapping
    from typing import NoReturn

    from .broker import Broker, Roots
    from .caller import Call

    Identity = tuple[int, int]  # device and number of a file
else:
    import _signal as signal

_AT_EMPTY_PATH, _AT_SYMLINK_NOFOLLOW = 0x1000, 0x100
_ARCH_SET_FS = 0x1002
_INT = 0xFFFFFFFF
_HEAD = 256  # as much as the kernel reads of a script
_MAX_INTERPRETERS = 5
_ANONYMOUS = "/memfd:"


def identities(loaders: Iterable[str], roots: Roots) -> frozenset[Identity]:
    """Return which files may only be opened by the kernel, since no rule lets them be started."""
    found = set()
    for path in {os.path.realpath(each) for each in loaders}:
        if not any(own == "execute" and beneath(path, root) for own, root in roots):
            try:
                found.add(_identity(os.stat(path)))
            except OSError:
                continue  # there is none of this name
    return frozenset(found)


def _start(broker: Broker, call: Call, folder: int, path: int, flags: int = 0) -> NoReturn:
    try:
        held = _named(call, folder, call.text(path), flags)
        for _ in range(_MAX_INTERPRETERS):
            held = _judge(broker, call, held)
        os.close(held)  # one more than the kernel would start
    except PermissionError:
        raise
    except OSError as error:
        raise GoOn from error  # the kernel shall find the same fault
    raise GoOn


def _named(call: Call, folder: int, text: bytes, flags: int) -> int:
    if not text and flags & _AT_EMPTY_PATH:
        return call.opened(folder)
    return look_up(call, folder, text, follow=not flags & _AT_SYMLINK_NOFOLLOW)


def _judge(broker: Broker, call: Call, held: int) -> int:
    """Refuse what must not run; return the interpreter of a script, GoOn where there is none."""
    try:
        status, path = os.fstat(held), real_path(held)
        if _identity(status) in broker.loaders or path.startswith(_ANONYMOUS):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        head = _head(held) if stat.S_ISREG(status.st_mode) else b""
    finally:
        os.close(held)
    if not head.startswith(b"#!"):
        raise GoOn
    interpreter = os.fsencode(shebang(head).partition(" ")[0])
    return look_up(call, AT_FDCWD, interpreter, follow=True)


def _head(held: int) -> bytes:
    """Read how the file begins; PermissionError where it may be started and not read.

    That is a refusal: what runs from such a file can not be looked at.
    """
    descriptor = os.open(f"/proc/self/fd/{held}", os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        return os.read(descriptor, _HEAD)
    finally:
        os.close(descriptor)


def _begin(broker: Broker, call: Call) -> NoReturn:
    """Look at what runs, now that it does; end what must not."""
    process = os.pidfd_open(call.process())
    try:
        if not _must_not_run(broker, call):
            raise GoOn
        if notification.is_waiting(broker.listener, call):
            signal.pidfd_send_signal(process, signal.SIGKILL)
    finally:
        os.close(process)
    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def _must_not_run(broker: Broker, call: Call) -> bool:
    """Tell whether the process runs a loader or a file of memory; so does what none can look at."""
    program = f"/proc/{call.thread}/exe"
    try:
        is_loader = _identity(os.stat(program)) in broker.loaders
        return is_loader or os.readlink(program).startswith(_ANONYMOUS)
    except OSError:
        return True


def _begin_here(broker: Broker, call: Call) -> NoReturn:
    if call.arguments[0] & _INT != _ARCH_SET_FS:
        raise GoOn
    _begin(broker, call)


def _identity(status: os.stat_result) -> Identity:
    return status.st_dev, status.st_ino


START_HANDLERS: Mapping[str, Callable[[Broker, Call], int]] = {
    "execve": lambda b, c: _start(b, c, AT_FDCWD, 0),
    "execveat": lambda b, c: _start(b, c, c.integer(0), 1, c.arguments[4] & _INT),
    "arch_prctl": _begin_here,
    "set_tid_address": _begin,
}
