"""The shape of the corpus: one attempt to get round the guard, and what must stop it."""

from __future__ import annotations

from dataclasses import dataclass

FILES = "sandbox_filesystem_denied"
EXECUTE = "sandbox_filesystem_execute_denied"
DESCRIPTOR = "sandbox_filesystem_fd_denied"
MODULE = "sandbox_module_denied"
PROCESS = "sandbox_subprocess_denied"
ENVIRONMENT = "sandbox_env_denied"
NETWORK = "sandbox_network_denied"
INTROSPECTION = "sandbox_introspection_denied"
GUARD = "sandbox_guard_denied"
LAUNCHER = "layer:launcher"  # the guard does not hold it; the kernel does, under democrai-launch
SILENT = "nothing"  # it gets nothing, and no refusal is seen: somebody swallowed it


@dataclass(frozen=True)
class Technique:
    """Code that calls `won(...)` where it gets through. It runs guarded and, as a control, free.

    Names at hand: SECRET (a file outside the rules), OUT (its folder), IN (an allowed folder),
    READABLE (a folder that may only be read, with a file `text` in it),
    PORT (a server on this machine), GETPID (where that function is), HELD (a descriptor of
    SECRET, opened before), FREE (whether this is the control), LATER (functions of a path, called
    once the guard is left), AGAIN (likewise, inside of guards that the host opens then), LOOP (an
    event loop of the host's), OUTER (another, which runs on once the guard is left), SIGNAL (a
    future for which a task of the host's waits there), FUTURE (one of `concurrent.futures`, done
    then as well), PACKAGE (an installed library that calls what it is handed), FRAMEWORK (one that
    opens guards), won(value), attempt(function). Where it
    `starts` programs, its guard allows processes, the dependencies `true` and `cat`, and what is in
    BIN, a folder that it may change; OUT/bin/true is another program, which ends with 1.
    """

    name: str
    code: str
    refused_with: str  # the code of the refusal, or `layer:…` where another layer must hold
    least: tuple[int, int] = (3, 11)
    starts: bool = False
