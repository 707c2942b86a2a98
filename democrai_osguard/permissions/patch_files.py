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
_GIT = "diff --git "
_MOVES = ({"rename from ", "rename to "}, {"copy from ", "copy to "})
_STARTS = ("deleted file mode ", *_MOVES[0], *_MOVES[1])
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
    found = (*_marked(lines), *_unified(lines), *_renamed(lines), *_headed(lines))
    return tuple(dict.fromkeys(found))


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
    moved = False  # whether git said why the two names differ
    for before, after in itertools.pairwise(lines):
        if before.startswith((_GIT, "rename from ", "copy from ")):
            moved = not before.startswith(_GIT)
        elif before.startswith("--- ") and after.startswith("+++ "):
            for old, new in zip(_readings(before[4:]), _readings(after[4:]), strict=True):
                files += _changed(*_without_prefixes(old, new), moved=moved)
    return files


def _changed(old: str, new: str, *, moved: bool) -> list[PatchedFile]:
    if new == _NO_FILE:
        return [PatchedFile("delete", old)]
    # Of two names that nothing explains, programs take one or the other: both count.
    others = () if moved or old == _NO_FILE else (old,)
    return [PatchedFile("write", name) for name in (new, *others)]


def _headed(lines: list[str]) -> list[PatchedFile]:
    """Return the files of git's headers, which need no lines of content: modes, empty, binary."""
    files: list[PatchedFile] = []
    header: list[str] = []
    for line in (*lines, _GIT):
        if line.startswith(_GIT):
            files += _of_header(header)
            header = [line]
        elif header:
            header.append(line)
    return files


def _of_header(header: list[str]) -> list[PatchedFile]:
    """Return the files that one header names, a `---` or `+++` line by itself among them."""
    if not header:
        return []
    until = next((at for at, line in enumerate(header) if line.startswith("@@")), len(header))
    starts = {start for line in header[:until] for start in _STARTS if line.startswith(start)}
    names = _headed_names(header[0][len(_GIT) :])
    if not any(pair <= starts for pair in _MOVES):
        sides = [line[4:] for line in header[:until] if line.startswith(("--- ", "+++ "))]
        names += [_cut(name) for side in sides for name in _readings(side) if name != _NO_FILE]
    effect = "delete" if "deleted file mode " in starts else "write"
    return [PatchedFile(effect, name) for name in names if name]


def _headed_names(text: str) -> list[str]:
    """Return a name that stands twice, in every reading; two names are named again further on."""
    halves = [(text[:at], text[at + 1 :]) for at, letter in enumerate(text) if letter in " \t"]
    plain = [half for half in halves if not half[0].startswith('"')]
    pairs = [*((_name(old), _name(new)) for old, new in halves), *plain]
    cut = [(_cut(old), _cut(new)) for old, new in pairs]
    return [new for old, new in (*cut, *pairs) if old == new and new]


def _cut(name: str) -> str:
    """Return a name without its first folder, whatever that is, as git reads its headers."""
    return name.partition("/")[2]


def _renamed(lines: list[str]) -> list[PatchedFile]:
    effects = {
        "rename from ": "delete",
        "rename to ": "write",
        "copy to ": "write",
        "copy from ": "read",
    }
    return [
        PatchedFile(effect, name)
        for line in lines
        for start, effect in effects.items()
        if line.startswith(start)
        for name in _moved(line[len(start) :])
    ]


def _moved(text: str) -> tuple[str, ...]:
    """Return the names that a rename's line may mean: git takes it whole, unless it is quoted."""
    return (_name(text),) if text.startswith('"') else (_name(text), text)


def _name(text: str) -> str:
    """Return the file name of a header line: unquoted, without the time that may follow a tab."""
    if text.startswith('"'):
        return _unquoted(text)
    return text.partition("\t")[0].strip()


def _readings(text: str) -> tuple[str, str]:
    """Return a name as programs read it that trim it, and as those do that do not."""
    return _name(text), text.partition("\t")[0] if not text.startswith('"') else _name(text)


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
