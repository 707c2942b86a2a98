"""Which files a patch touches, and how: unified diffs, and patches with `*** Update File:` lines.

A patch is read as text; nothing is applied and no file is opened.
"""

from __future__ import annotations

import itertools
import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_MARKED = re.compile(r"\*\*\* (Add|Update|Delete) File:(.*)")
_MOVED = re.compile(r"\*\*\* Move to:(.*)")
_SIDES = ("--- ", "+++ ", "*** ")  # the last is the old side of a context diff
_COUNTED = re.compile(r"@@+ -\d+(?:,(\d+))? (?:-\S+ )*\+\d+(?:,(\d+))? @@")
_BARE = re.compile(r"@@(?! -\d)")
_BYTE_ORDER = "\ufeff"
_LONGEST_HEADER = 8192  # two names, as long as the kernel takes them
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
    """Return the files that a patch touches, each effect once.

    Programs read patches in many ways; where they differ, each reading counts. A name that cannot
    be made out is returned empty.
    """
    lines = [line.rstrip("\r") for line in patch.removeprefix(_BYTE_ORDER).split("\n")]
    found = _files(lines)
    others = patch.removeprefix(_BYTE_ORDER).splitlines()  # at every kind of line end
    return tuple(dict.fromkeys((*found, *(_files(others) if others != lines[:-1] else ()))))


def _files(lines: list[str]) -> tuple[PatchedFile, ...]:
    found = (*_marked(lines), *_unified(lines), *_renamed(lines), *_headed(lines))
    return (*found, *_apart(lines, {file.path for file in found}))


def _marked(lines: list[str]) -> list[PatchedFile]:
    files: list[PatchedFile] = []
    for line in map(str.strip, lines):  # indented, or in a document of the shell
        if found := _MARKED.match(line):
            effect = "delete" if found.group(1) == "Delete" else "write"
            files.append(PatchedFile(effect, found.group(2).strip()))
        elif (found := _MOVED.match(line)) and files:
            files[-1] = PatchedFile("delete", files[-1].path)
            files.append(PatchedFile("write", found.group(1).strip()))
    return files


def _apart(lines: list[str], known: set[str]) -> list[PatchedFile]:
    """Return the names that stand by themselves outside of what a patch says of their content.

    `patch` takes them in any order and with anything in between, indented, or after `Index:`.
    """
    files: list[PatchedFile] = []
    for line in _outside(lines):
        if line.startswith("Index: "):
            names = {line[7:].strip()}
        elif line.startswith(_SIDES) and not _MARKED.match(line) and not _MOVED.match(line):
            names = {cut for name in _readings(line[4:]) for cut in (name, _cut(name))}
        else:
            continue
        if names.isdisjoint({*known, _NO_FILE}) and not _is_frame(line):
            files += [PatchedFile("write", name) for name in sorted(names - {""})]
    return files


def _is_frame(line: str) -> bool:
    """Tell whether a line only frames a patch, or counts the lines of a context diff."""
    return line.startswith(("*** Begin Patch", "*** End ", "*** Environment ID")) or bool(
        re.fullmatch(r"(?:\*\*\*|---) \d+(?:,\d+)? (?:\*\*\*\*|----)", line)
    )


def _outside(lines: list[str]) -> Iterator[str]:
    """Yield the lines outside of hunks, without indentation; a hunk is as long as it says."""
    old = new = 0
    bare = False  # inside a hunk that does not say how long it is
    for line in lines:
        text = line.lstrip()
        if old > 0 or new > 0:
            side = text[:1] if line[:1] != " " else " "
            old, new = old - (side not in {"+", "\\"}), new - (side not in {"-", "\\"})
        elif counts := _COUNTED.match(text):
            old, new = (1 if count is None else int(count) for count in counts.groups())
        elif _BARE.match(text):
            bare = True
        elif not bare or text.startswith((_GIT, "*** ")):
            bare = False
            yield text


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
        cut = [_cut(name) for side in sides for name in _readings(side) if name != _NO_FILE]
        names += [name for name in cut if name]
    effect = "delete" if "deleted file mode " in starts else "write"
    return [PatchedFile(effect, name) for name in names]


def _headed_names(text: str) -> list[str]:
    """Return a name that stands twice, in every reading; two names are named again further on."""
    if len(text) > _LONGEST_HEADER:
        return [""]
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
