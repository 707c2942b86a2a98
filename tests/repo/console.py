"""Reads the console blocks of a document, and plays them in a folder of their own.

What a reader does not see stands in comments of the document:

    <!-- given: mkdir inbox -->           a line of shell, run before what follows
    <!-- file: manifest.json -->          the fenced block that follows is that file
    <!-- stand-in 7f3a: some command -->  the document says 7f3a for what that command prints
    <!-- alike: each host has its own --> of the next outputs, each line's first word is compared

In an expected output `…` is any text of a line, and a line that is `…` alone is any lines. The
document calls its folder /srv/notes. `$?` is the exit code of the command before.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FOLDER = "/srv/notes"
_PATIENCE = 60.0
_PIECE = re.compile(
    r"^<!-- (?P<word>given|file|stand-in|alike)(?: (?P<name>\S+))?: (?P<text>.*?) -->$"
    r"|^(?P<fence>```+)(?P<language>\w*)\n(?P<body>.*?)^(?P=fence)$",
    re.MULTILINE | re.DOTALL,
)
_FIRST_WORD = re.compile(r"^(?!\$ )( *\S+).*$", re.MULTILINE)  # of a line of output


@dataclass(frozen=True, slots=True)
class Given:
    """Shell that prepares what follows."""

    script: str


@dataclass(frozen=True, slots=True)
class File:
    """A file that the document shows."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class StandIn:
    """A word of the document for what a command prints here."""

    word: str
    script: str


@dataclass(frozen=True, slots=True)
class Command:
    """A command that the document shows, and what it is said to print."""

    line: int
    text: str
    output: tuple[str, ...]


Step = Given | File | StandIn | Command


def steps(document: str) -> Iterator[Step]:
    """Yield what a document shows and prepares, from top to bottom."""
    name, alike = None, False
    for piece in _PIECE.finditer(document):
        if piece["word"] == "given":
            yield Given(piece["text"])
        elif piece["word"] == "stand-in":
            yield StandIn(piece["name"], piece["text"])
        elif piece["word"] == "file":
            name = piece["text"]
        elif piece["word"] == "alike":
            alike = True
        elif name is not None:
            yield File(name, piece["body"])
            name = None
        elif piece["language"] == "console":
            body = _FIRST_WORD.sub(r"\1…", piece["body"]) if alike else piece["body"]
            yield from _commands(body, document.count("\n", 0, piece.start()) + 2)
            alike = False


def _commands(body: str, line: int) -> Iterator[Command]:
    for part in re.split(r"^(?=\$ )", body, flags=re.MULTILINE):
        lines = part.splitlines()
        if lines:
            yield Command(line, lines[0].removeprefix("$ "), tuple(lines[1:]))
            line += len(lines)


def agrees(expected: tuple[str, ...], printed: str) -> bool:
    """Tell whether this was printed, as far as the document says."""
    pattern = "".join(
        r"(?:.*\n)*?" if line == "…" else ".*".join(map(re.escape, line.split("…"))) + r" *\n"
        for line in expected
    )
    return re.fullmatch(pattern, printed) is not None


class Stage:
    """A folder with an environment of its own, and no helper, in which a document is played."""

    def __init__(self, folder: Path) -> None:
        self._folder = (folder / "notes").resolve()
        self._folder.mkdir()
        self._words = {FOLDER: str(self._folder)}
        self._code = 0
        self._environment = {
            "DEMOCRAI_OS_HELPER_SOCKET": str(folder / "no-helper.sock"),
            "DEMOCRAI_STATE_DIR": str(folder / "state"),
            # Else it is /tmp, where this folder may be: a guard lets the application use its own.
            "DEMOCRAI_TEMP_DIR": str(folder / "temp"),
            "HOME": str(folder),
            "LC_ALL": "C.UTF-8",
            # A guard refuses to write beside the sources, and the log would say so at random.
            "PYTHONDONTWRITEBYTECODE": "1",
            "PATH": os.pathsep.join((os.path.dirname(sys.executable), os.defpath, "/usr/sbin")),
        }

    def prepare(self, step: Given | File | StandIn) -> None:
        """Do what readers are not asked to do."""
        if isinstance(step, File):
            path = self._folder / step.name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(self._here(step.text), encoding="utf-8")
            return
        done = self._shell(step.script)
        assert done.returncode == 0, f"{step.script}: {done.stdout}"
        if isinstance(step, StandIn):
            self._words[step.word] = done.stdout.strip()

    def run(self, command: Command) -> str:
        """Run a command; return what it prints, in the words of the document."""
        done = self._shell(f"(exit {self._code}); {command.text}")
        self._code = done.returncode
        return self._there(done.stdout)

    def _shell(self, script: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["sh", "-c", self._here(script)],
            cwd=self._folder, env=self._environment, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
            timeout=_PATIENCE,
        )  # fmt: skip

    def _here(self, text: str) -> str:
        for word, meant in self._words.items():
            text = text.replace(word, meant)
        return text

    def _there(self, text: str) -> str:
        for word, meant in self._words.items():
            text = text.replace(meant, word)
        return text
