"""A policy from a manifest, read by the program that knows manifests: this one only calls it."""

from __future__ import annotations

import os
import select
import sys

from .access import parse
from .errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .rules import Rule

_STANDARD_OUTPUT, _STANDARD_ERROR = 1, 2
_READER = "democrai-osguard: "
_WARNING = f"{_READER}warning: "
_PIECE = 1 << 16
# Those that have manifests.
KINDS = ("module", "task", "engine", "extractor", "tool", "agent", "pipeline", "core")


def rules_of(file: str, kind: str | None, phase: str) -> tuple[tuple[Rule, ...], tuple[str, ...]]:
    """Return the rules of a manifest, and what its reader warns of.

    Without a kind the reader sees it. Raise UsageError with the reader's words when it is none.
    """
    if kind is not None and kind not in KINDS:
        known = ", ".join(KINDS)
        raise UsageError(f"--manifest: a subject of the kind {kind} has none ({known} have)")
    command = [sys.executable, "-I", "-m", "democrai_osguard.cli.main"]
    command += ["manifest", "access", file, "--phase", phase]
    command += ["--kind", kind] if kind else []
    status, output, complaint = _run(command)
    lines = complaint.strip().splitlines()
    if status != 0:
        line = lines[-1] if lines else "no policy"
        raise UsageError(f"--manifest {file}: {line.removeprefix(_READER)}")
    warnings = (line.removeprefix(_READER) for line in lines if line.startswith(_WARNING))
    rules = parse(output.strip(), at="--manifest")
    return rules, tuple(f"--manifest {file}: {each}" for each in warnings)


def _run(command: list[str]) -> tuple[int, str, str]:
    """Run the command and return its status, output and complaints."""
    output, complaints = os.pipe(), os.pipe()
    actions = [
        (os.POSIX_SPAWN_DUP2, output[1], _STANDARD_OUTPUT),
        (os.POSIX_SPAWN_DUP2, complaints[1], _STANDARD_ERROR),
    ]
    child = os.posix_spawn(command[0], command, os.environ, file_actions=actions)
    for _, writer in (output, complaints):
        os.close(writer)
    said, complained = _read(output[0], complaints[0])
    return os.waitpid(child, 0)[1], said, complained


def _read(*pipes: int) -> list[str]:
    """Read the pipes to their ends, together, so that no writer waits at one of them."""
    texts = dict.fromkeys(pipes, b"")
    poll = select.poll()
    for pipe in pipes:
        poll.register(pipe, select.POLLIN)
    left = set(pipes)
    while left:
        for pipe, _ in poll.poll():
            piece = os.read(pipe, _PIECE)
            texts[pipe] += piece
            if not piece:
                poll.unregister(pipe)
                os.close(pipe)
                left.remove(pipe)
    return [text.decode(errors="replace") for text in texts.values()]
