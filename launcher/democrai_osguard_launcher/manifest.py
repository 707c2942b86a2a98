"""A policy from a manifest, read by the program that knows manifests: this one only calls it."""

from __future__ import annotations

import os
import sys

from .access import parse
from .errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .rules import Rule

PHASES = ("runtime", "install")
_STANDARD_OUTPUT = 1


def rules_of(file: str, kind: str, phase: str) -> tuple[Rule, ...]:
    """Return the rules of a manifest; raise UsageError when it does not parse."""
    reader, writer = os.pipe()
    command = [sys.executable, "-I", "-m", "democrai_osguard.cli.main"]
    command += ["manifest", "access", file, "--kind", kind, "--phase", phase]
    actions = [(os.POSIX_SPAWN_DUP2, writer, _STANDARD_OUTPUT)]
    child = os.posix_spawn(sys.executable, command, os.environ, file_actions=actions)
    os.close(writer)
    with os.fdopen(reader, encoding="utf-8") as pipe:
        text = pipe.read()
    if os.waitpid(child, 0)[1] != 0:
        raise UsageError(f"--manifest: {file} gives no policy")
    return parse(text.strip(), at="--manifest")
