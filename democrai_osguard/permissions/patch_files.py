"""Which files a patch touches, and how: unified diffs, and patches with `*** Update File:` lines.

A patch is read as text; nothing is applied and no file is opened.
"""

from __future__ import annotations

import itertools
import os
import re
from dataclasses import dataclass

_MARKED = re.compile(r"\*\*\* (Add|Update|Delete) File: (.+)")
_MOVED = re.compile(r"\*\*\* Move to: (.+)")
_NO_FILE = "/dev/null"
_ESCAPE = re.compile(rb"\\([0-7]{3}|.)")
_LETTERS = {
    b"n": b"\n",
    b"t": b"\t",
    b"r": b"\r",
    b"a": b"\a",
    b"b": b"\b",
    b"f": b"\f",
    b"v": b"\v",
}


@dataclass(frozen=True, slots=True)
class PatchedFile:
    """One file of a patch, and what is done to it: `read`, `write` or `delete`."""

    effect: str
    path: str


def patched_files(patch: str) -> tuple[PatchedFile, ...]:
    """Return the files that a patch touches, in its order, each effect once."""
    lines = [line.rstrip("\r") for line in patch.split("\n")]
    return tuple(dict.fromkeys((*_marked(lines), *_unified(lines), *_renamed(lines))))


def _marked(lines: list[str]) -> list[PatchedFile]:
    files: list[PatchedFile] = []
    for line in lines:
        if found := _MARKED.match(line):
            effect = "delete" if found.group(1) == "Delete" else "write"
            files.append(PatchedFile(effect, found.group(2).strip()))
        elif (found := _MOVED.match(line)) and files:
            files[-1] = PatchedFile("delete", files[-1].path)
            files.append(PatchedFile("write", found.group(1).strip()))
    return files


def _unified(lines: list[str]) -> list[PatchedFile]:
    files: list[PatchedFile] = []
    for before, after in itertools.pairwise(lines):
        if before.startswith("--- ") and after.startswith("+++ "):
            old, new = _without_prefixes(_name(before[4:]), _name(after[4:]))
            gone = new == _NO_FILE
            files.append(PatchedFile("delete", old) if gone else PatchedFile("write", new))
    return files


def _renamed(lines: list[str]) -> list[PatchedFile]:
    effects = {
        "rename from ": "delete",
        "rename to ": "write",
        "copy to ": "write",
        "copy from ": "read",
    }
    return [
        PatchedFile(effect, _name(line[len(start) :]))
        for line in lines
        for start, effect in effects.items()
        if line.startswith(start)
    ]


def _name(text: str) -> str:
    """Return the file name of a header line: unquoted, without the time that may follow a tab."""
    if text.startswith('"'):
        return _unquoted(text)
    return text.partition("\t")[0].strip()


def _unquoted(text: str) -> str:
    inside = re.match(r'"((?:[^"\\]|\\.)*)"', text)
    raw = os.fsencode(inside.group(1) if inside else text.strip('"'))
    return os.fsdecode(_ESCAPE.sub(_byte, raw))


def _byte(escape: re.Match[bytes]) -> bytes:
    word = escape.group(1)
    return bytes([int(word, 8) & 0xFF]) if word.isdigit() else _LETTERS.get(word, word)


def _without_prefixes(old: str, new: str) -> tuple[str, str]:
    """Return both names without the a/ and b/ of git, where both have them."""
    if old.startswith(("a/", _NO_FILE)) and new.startswith(("b/", _NO_FILE)):
        return old.removeprefix("a/"), new.removeprefix("b/")
    return old, new
