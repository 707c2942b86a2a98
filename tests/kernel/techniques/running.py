"""Ways to run what may not run."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import TYPE_CHECKING

from .ground import call

if TYPE_CHECKING:
    from collections.abc import Callable

    from .ground import Technique, World


def _run(start: Callable[[], object]) -> None:
    child = os.fork()
    if child == 0:
        try:
            start()
        except OSError as error:
            os._exit(error.errno or 1)
        os._exit(1)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code:
        raise OSError(abs(code), os.strerror(abs(code)))


TRUE = "/usr/bin/true"
LOADER = "/lib64/ld-linux-x86-64.so.2"


def execute(path: str | Path, *arguments: str) -> None:
    _run(lambda: os.execv(path, [str(path), *arguments]))  # noqa: S606


def by_copying_a_program(w: World) -> None:
    copy = w.inside / "program"
    copy.write_bytes(PROGRAM)
    copy.chmod(0o755)
    execute(copy)


def by_the_loader(_: World) -> None:
    cannot_open = 127
    try:
        execute(LOADER, TRUE)
    except OSError as error:
        if error.errno == cannot_open:
            raise PermissionError(13, "the loader cannot read it") from error
        raise


_COPY = Path(__file__).parent.with_name("true")  # where a sandbox may not read the real one
PROGRAM = (_COPY if _COPY.exists() else Path(TRUE)).read_bytes()


def by_a_memory_file(_: World) -> None:
    descriptor = call(319, b"program", 0)
    os.write(descriptor, PROGRAM)
    _run(lambda: os.execve(descriptor, ["true"], {}))  # noqa: S606


def by_a_memory_file_without_a_seal(_: World) -> None:
    descriptor = call(319, b"program", 0x10)  # MFD_EXEC
    os.write(descriptor, PROGRAM)
    _run(lambda: os.execv(f"/proc/self/fd/{descriptor}", ["true"]))  # noqa: S606


def by_execveat(_: World) -> None:
    descriptor = os.open(TRUE, os.O_PATH)
    empty = ctypes.create_string_buffer(1)
    argv = (ctypes.c_char_p * 2)(b"true", None)
    _run(lambda: call(322, descriptor, empty, argv, None, 0x1000))


def by_a_script(w: World) -> None:
    script = w.inside / "script"
    script.write_text(f"#!{TRUE}\n")
    script.chmod(0o755)
    execute(script)


def by_a_link_to_a_program(w: World) -> None:
    (w.inside / "program").symlink_to(TRUE)
    execute(w.inside / "program")


RUNNING: dict[str, Technique] = {
    "run a program": (lambda _: execute(TRUE), True),
    "run a program by descriptor": (by_execveat, True),
    "run a program through a link": (by_a_link_to_a_program, True),
    "run a program through a script": (by_a_script, True),
    "run a copy of a program": (by_copying_a_program, True),
    "run a program through the loader": (by_the_loader, True),
    "run a memory file": (by_a_memory_file, True),
    "run a memory file that says so": (by_a_memory_file_without_a_seal, True),
}
