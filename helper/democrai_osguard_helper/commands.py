"""Runs the firewall's programs: fixed names, fixed places, no shell, an empty environment."""

from __future__ import annotations

import os
import subprocess
from typing import Final

from .layers import LayerFailed

_PLACES: Final = ("/usr/sbin", "/sbin", "/usr/bin", "/bin")
_ENVIRONMENT: Final = {"PATH": ":".join(_PLACES), "LC_ALL": "C"}
TIMEOUT: Final = 20.0  # seconds: longer than the wait for the xtables lock below
LOCK_WAIT: Final = "10"

RESTORE: Final = {
    4: ("iptables-restore", "-w", LOCK_WAIT, "--noflush"),
    6: ("ip6tables-restore", "-w", LOCK_WAIT, "--noflush"),
}
SAVE: Final = {4: ("iptables-save", "-t", "filter"), 6: ("ip6tables-save", "-t", "filter")}
SETS: Final = ("ipset", "restore")
SET_NAMES: Final = ("ipset", "list", "-n")
SET_SIZES: Final = ("ipset", "list", "-t")
SET_CONTENTS: Final = ("ipset", "save")


def find(program: str) -> str:
    """Return where a program is; raise LayerFailed where it is not installed."""
    for place in _PLACES:
        path = f"{place}/{program}"
        if os.access(path, os.X_OK):
            return path
    raise LayerFailed(f"{program} is not installed")


class Commands:
    """The programs as they are; tests put a fake in this place."""

    spare: subprocess.Popen[str] | None = None  # started, and waiting for its first line

    def prepare(self) -> None:
        """Start the program that fills sets beforehand: starting it takes longer than its work.

        It ends when we do, for its input ends then.
        """
        if self.spare is None or self.spare.poll() is not None:
            self.close()
            self.spare = _start(SETS)

    def close(self) -> None:
        """End the program that waits."""
        spare, self.spare = self.spare, None
        if spare is not None:
            _finish(SETS[0], spare, "")

    def run(self, *jobs: tuple[tuple[str, ...], str]) -> list[str]:
        """Run all jobs at once; return their outputs. Raise LayerFailed if one fails."""
        processes: list[subprocess.Popen[str]] = []
        try:
            for words, _ in jobs:
                processes.append(self._started(words))
        except LayerFailed:
            for process in processes:
                process.kill()  # none has read a word yet
                process.communicate()
            raise
        outcomes = [
            _finish(words[0], process, text)
            for process, (words, text) in zip(processes, jobs, strict=True)
        ]
        failed = [error for _, error in outcomes if error]
        if failed:
            raise LayerFailed(failed[0])
        return [output for output, _ in outcomes]

    def _started(self, words: tuple[str, ...]) -> subprocess.Popen[str]:
        spare = self.spare
        if words != SETS or spare is None or spare.poll() is not None:
            return _start(words)
        self.spare = None
        return spare


def _start(words: tuple[str, ...]) -> subprocess.Popen[str]:
    pipe, program = subprocess.PIPE, find(words[0])
    try:
        return subprocess.Popen(  # noqa: S603 - a fixed program with fixed words
            [program, *words[1:]],
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            env=_ENVIRONMENT,
            text=True,
        )
    except OSError as error:  # no room for another process, or for its pipes
        raise LayerFailed(f"{words[0]}: {error.strerror}") from error


def _finish(name: str, process: subprocess.Popen[str], text: str) -> tuple[str, str]:
    try:
        output, error = process.communicate(text, timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return "", f"{name}: no answer in {TIMEOUT:.0f} s"
    if process.returncode != 0:
        last = (error.strip().splitlines() or ["failed"])[0]
        return "", f"{name}: {last[:200]}"
    return output, ""
