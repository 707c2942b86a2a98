"""The command as a file: where it is, and what the kernel must start to start it.

It reads the first bytes of the command and of its interpreters, and changes nothing.
"""

from __future__ import annotations

import os

from .errors import NotExecutable, NotFound
from .record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_HEAD = 4096  # the kernel reads 256 bytes for a shebang; an ELF's program headers fit in a page
_MAX_INTERPRETERS = 5  # deeper chains of scripts end in ELOOP
_DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"
_PT_INTERP = 3
SYSTEM_FOLDERS = frozenset(  # which need root to change
    {"/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin", "/bin", "/sbin"}
)


class Program(Record):
    """A command that exists: its path, the files that must be executable, the folders it reads."""

    path: str
    executables: tuple[str, ...]
    readable: tuple[str, ...] = ()
    loaders: tuple[str, ...] = ()  # those of the executables that only map others


def find(name: str, path: str | None, called: str | None = None) -> Program:
    """Look the command up as execvp would; raise NotFound or NotExecutable.

    `called` is another place of the same file, by which it was asked for.
    """
    command = locate(name, path)
    steps = tuple(steps_of(command, path))
    files = tuple(file for file, _ in steps)
    names = files if called is None else (called, *files)
    prefixes = [prefix for file in names for prefix in _python_prefixes(file)]
    loaders = tuple(file for file, is_loader in steps if is_loader)
    return Program(command, files, tuple(dict.fromkeys(prefixes)), loaders)


def locate(name: str, path: str | None) -> str:
    """Return the file that the name means on this PATH; raise NotFound or NotExecutable."""
    if not name or "\0" in name:
        raise NotFound(f"{name!r}: command not found")
    candidates = tuple(_candidates(name, path))
    present = [file for file in candidates if os.path.exists(file)]
    for file in present:
        if os.path.isfile(file) and os.access(file, os.X_OK):
            return file
    if present:
        raise NotExecutable(f"{name}: {present[0]} is not an executable file")
    if "/" in name and not candidates:
        raise NotFound(f"{name}: command not found: it is relative to a folder that is gone")
    raise NotFound(f"{name}: command not found")


def _candidates(name: str, path: str | None) -> Iterator[str]:
    """Yield where the file may be. A working folder that is gone holds none."""
    # An empty entry of PATH means the working folder: nobody means that in a sandbox.
    folders = [folder for folder in (path or _DEFAULT_PATH).split(":") if folder]
    words = [name] if "/" in name else [os.path.join(folder, name) for folder in folders]
    for word in words:
        try:
            yield os.path.abspath(word)
        except FileNotFoundError:
            continue


def steps_of(file: str, path: str | None = None) -> Iterator[tuple[str, bool]]:
    """Yield the file and, one after the other, what the kernel opens to start it.

    With each goes whether it is a loader, opened for another file and not started itself.
    """
    for _ in range(_MAX_INTERPRETERS):
        yield file, False
        head = _read_head(file)
        if not head.startswith(b"#!"):
            yield from _loaders(head)
            return
        interpreter, _, argument = shebang(head).partition(" ")
        if os.path.basename(interpreter) == "env":
            yield interpreter, False
            yield from _loaders(_read_head(interpreter))
            interpreter = locate(_env_program(argument), path)
        file = interpreter
    raise NotExecutable(f"{file}: too many interpreters in a row")


def _read_head(file: str) -> bytes:
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise NotFound(f"{file}: the interpreter does not exist") from error
    except OSError:
        return b""  # executable and not readable: then it is no script, and the loader is known
    try:
        return os.read(descriptor, _HEAD)
    finally:
        os.close(descriptor)


def shebang(head: bytes) -> str:
    """Return the interpreter and its argument, from the first bytes of a script."""
    line = head[2:].split(b"\n", 1)[0].strip()
    interpreter, _, argument = line.replace(b"\t", b" ").partition(b" ")
    return os.fsdecode(interpreter + b" " + argument.strip())


def _env_program(argument: str) -> str:
    words = argument.removeprefix("-S").split()
    return next((word for word in words if "=" not in word and not word.startswith("-")), "")


def _loaders(head: bytes) -> Iterator[tuple[str, bool]]:
    """Yield the dynamic loader that a 64-bit little-endian ELF file names, if it names one."""
    if head[:6] != b"\x7fELF\x02\x01":
        return
    table, size = int.from_bytes(head[32:40], "little"), int.from_bytes(head[54:56], "little")
    for index in range(int.from_bytes(head[56:58], "little")):
        entry = head[table + index * size :][:size]
        if int.from_bytes(entry[:4], "little") == _PT_INTERP:
            start = int.from_bytes(entry[8:16], "little")
            yield os.fsdecode(head[start:].split(b"\0", 1)[0]), True


def _python_prefixes(file: str) -> Iterator[str]:
    """Yield what a Python outside /usr reads to start: its library, and its environment's.

    The file is looked at under its own name (a virtual environment) and under its real one (the
    installation that the environment was made from, often below somebody's home).
    """
    for path in dict.fromkeys((file, os.path.realpath(file))):
        prefix = os.path.dirname(os.path.dirname(path))
        config = os.path.join(prefix, "pyvenv.cfg")
        if os.path.basename(path).startswith(("python", "pypy")) or os.path.exists(config):
            yield from _present(prefix, "lib", "lib64", "pyvenv.cfg")


def _present(prefix: str, *names: str) -> Iterator[str]:
    if prefix in {"/", "/usr"}:  # the runtime table has these already
        return
    inside = os.path.join(os.path.realpath(prefix), "")
    for name in names:
        path = os.path.join(prefix, name)
        # Whoever put a link there that leads out must not choose what is read.
        if os.path.exists(path) and os.path.realpath(path).startswith(inside):
            yield path
