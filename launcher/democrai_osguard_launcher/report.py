"""Files that the launcher writes for whoever asked for them: whole, also where there is no room."""

from __future__ import annotations

import errno
import os
import stat

from .errors import UsageError

_MODE = 0o600  # it names files and programs of this user
_OPEN_ALREADY = ("/dev/stdout", "/dev/stderr", "/dev/fd/", "/proc/self/fd/")
_MORE = b'{"more": "was left out"}\n'


def open_report(option: str, path: str) -> int:
    """Open a file to write to, named by an option; raise UsageError when that fails.

    A link is not followed, but for those to what this process has open: an earlier command may have
    left it where this one reports to, so that it leads where no rule of its own does. Nor is a
    file written that has a second name, or a fifo; a device no command makes.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC
    if path.startswith(_OPEN_ALREADY):
        return _opened(option, path, flags | os.O_TRUNC)
    file = _opened(option, path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)
    status = os.fstat(file)
    is_file = stat.S_ISREG(status.st_mode)
    if status.st_nlink > 1 or not (is_file or stat.S_ISCHR(status.st_mode)):
        os.close(file)
        raise _fault(option, path, "it has a second name" if is_file else "it is not a file")
    os.set_blocking(file, True)
    if is_file:
        os.ftruncate(file, 0)
    return file


def _opened(option: str, path: str, flags: int) -> int:
    try:
        return os.open(path, flags, _MODE)
    except OSError as error:
        why = {errno.ELOOP: "it is a link", errno.ENXIO: "it is not a file"}
        raise _fault(option, path, why.get(error.errno or 0, str(error.strerror))) from error


def _fault(option: str, path: str, why: str) -> UsageError:
    return UsageError(f"{option}: {path}: {why}")


def write_whole(file: int, data: bytes) -> None:
    """Write all of it: a disk that becomes full takes a part, and only then says so."""
    while data:
        data = data[os.write(file, data) :]


class Lines:
    """Lines below a head. Where one finds no room, the last one makes way for a word about it."""

    def __init__(self, file: int, head: str) -> None:
        self.file = file
        write_whole(file, f"{head}\n".encode())
        self._last = self._end = len(head.encode()) + 1

    def add(self, line: str) -> bool:
        """Write a line; tell whether there was room. If not, the file says so and is at its end."""
        data = f"{line}\n".encode()
        try:
            write_whole(self.file, data)
        except OSError:
            self._end_early()
            return False
        self._last, self._end = self._end, self._end + len(data)
        return True

    def _end_early(self) -> None:
        try:
            os.ftruncate(self.file, self._last)
            os.lseek(self.file, self._last, os.SEEK_SET)
            write_whole(self.file, _MORE)
        except OSError:
            return  # a pipe or a device keeps what it got; or there is a head, and room for no more
