"""A child process and what it has started, found in /proc, and ended together.

Who belongs to it: those whose parent does, and those in a session or process group that one of them
leads. A process that has left all of these, since its parent has ended, is not found.
"""

from __future__ import annotations

from posix import close, getpid, listdir, pidfd_open
from posix import open as open_file
from posix import read as read_file
from typing import TYPE_CHECKING, Any

from democrai_osguard.guard.sealed.core import current, unguarded

if TYPE_CHECKING:
    from signal import pidfd_send_signal
else:
    from _signal import pidfd_send_signal  # no function that guarded code could have changed

_STOP, _KILL = 19, 9
_MOST_ROUNDS = 32  # of looking for what was started while we looked
_MOST = 4096  # bytes of a line in /proc
_CLOSE_ON_EXEC = 0o2000000
_BONDS = 3  # parent, group and session
_BEGAN = 19  # which word, after the name, says when a process began


def end_task(pid: Any) -> None:
    """End a child of this process, and what it has started; what is not a child is left alone."""
    if type(pid) is not int:
        raise TypeError("a process is a number")
    state = current()
    if state is None:
        _end(pid)
    else:
        unguarded(state, _end, pid)


def members(pid: int, found: dict[int, tuple[int, ...]]) -> set[int]:
    """Return who belongs to a process, from the parent, group and session of each. Pure."""
    family = {pid}
    while True:
        new = {each for each, seen in found.items() if not family.isdisjoint(seen[:_BONDS])}
        if new <= family:
            return family
        family |= new


def _end(pid: int) -> None:
    """Stop all of them first: one that goes on could start another that nobody sees."""
    stopped: dict[int, int] = {}
    for _ in range(_MOST_ROUNDS):
        found = _processes()
        if found.get(pid, (0,))[0] != getpid():
            break
        new = members(pid, found) - stopped.keys() - {getpid()}
        if not new:
            break
        for each in new & found.keys():
            stopped[each] = found[each][_BONDS]
            _send(each, stopped[each], _STOP)
    for each, since in stopped.items():
        _send(each, since, _KILL)


def _send(pid: int, since: int, number: int) -> None:
    """Send a signal to the process that began then, and to no other of its number."""
    try:
        handle = pidfd_open(pid)
    except OSError:
        return
    try:
        seen = _seen(str(pid))
        if seen and seen[_BONDS] == since:
            pidfd_send_signal(handle, number)
    except OSError:
        pass  # it has ended, or has become another user
    finally:
        close(handle)


def _processes() -> dict[int, tuple[int, ...]]:
    names = [name for name in listdir("/proc") if name.isdigit()]
    found = {int(name): _seen(name) for name in names}
    return {pid: seen for pid, seen in found.items() if seen}


def _seen(name: str) -> tuple[int, ...]:
    """Return parent, group and session of a process, and when it began; nothing if it is gone."""
    try:
        file = open_file(f"/proc/{name}/stat", _CLOSE_ON_EXEC)
    except OSError:
        return ()
    try:
        words = read_file(file, _MOST).rpartition(b")")[2].split()
    except OSError:
        return ()
    finally:
        close(file)
    return (*map(int, words[1 : 1 + _BONDS]), int(words[_BEGAN]))
