"""A policy from a manifest, read by the program that knows manifests: this one only calls it."""

from __future__ import annotations

import os
import sys

from .access import parse
from .errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .rules import Rule

_STANDARD_OUTPUT, _STANDARD_ERROR = 1, 2
_READER = "democrai-osguard: "


def rules_of(file: str, kind: str, phase: str) -> tuple[Rule, ...]:
    """Return the rules of a manifest; raise UsageError with the reader's words when it is none."""
    command = [sys.executable, "-I", "-m", "democrai_osguard.cli.main"]
    command += ["manifest", "access", file, "--kind", kind, "--phase", phase]
    status, output, complaint = _run(command)
    if status != 0:
        lines = complaint.strip().splitlines() or ["no policy"]
        raise UsageError(f"--manifest {file}: {lines[-1].removeprefix(_READER)}")
    return parse(output.strip(), at="--manifest")


def _run(command: list[str]) -> tuple[int, str, str]:
    """Run the command and return its status, output and complaints."""
    output, complaints = os.pipe(), os.pipe()
    actions = [
        (os.POSIX_SPAWN_DUP2, output[1], _STANDARD_OUTPUT),
        (os.POSIX_SPAWN_DUP2, complaints[1], _STANDARD_ERROR),
    ]
    child = os.posix_spawn(command[0], command, os.environ, file_actions=actions)
    texts = []
    for reader, writer in (output, complaints):
        os.close(writer)
        with os.fdopen(reader, encoding="utf-8", errors="replace") as pipe:
            texts.append(pipe.read())
    return os.waitpid(child, 0)[1], texts[0], texts[1]
