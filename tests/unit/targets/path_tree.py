"""A tree of folders, files and links for the path tables, and the shapes of their rows."""

from __future__ import annotations

import os
from typing import NamedTuple

ROOT, OUTSIDE = "$T", "$O"  # how a row writes the two folders of the tree
LONGEST_CHAIN = 40  # links that the kernel follows in one walk

FOLDERS = ("dir", "dir/sub", "dir2", "names", "chain", "hidden", "Case")
FILES = ("dir/file", "dir/sub/deep", "chain/0", "Case/X", "hidden/file")
NAMES = (
    "new\nline",
    " spaces ",
    "tab\there",
    "back\\slash",
    "caf\u00e9",
    "cafe\u0301",
    "\u65e5\u672c",
    "\udcff\udcfe",
    "...",
    "..x",
    "%2e%2e",
    "*",
    "~",
    "{data_dir}",
    "-rf",
    "\x01",
)
LINKS = {
    "in": "dir/sub",
    "in_abs": f"{ROOT}/dir/sub",
    "to_file": "dir/file",
    "nested": "in",
    "out": "../outside",
    "out_abs": OUTSIDE,
    "dir/out": "../../outside/secret",
    "dangling": "missing_target",
    "dangling_abs": f"{OUTSIDE}/nothing",
    "dangling_deep": "missing/deeper",
    "loop": "loop",
    "ping": "pong",
    "pong": "./ping",
    "inner_loop": "inner_loop/x",
    "dir/sub/up": "..",
    "dir/sub/upup": "../..",
    "dir/here": ".",
    "slash": "/",
    "slashes": "//",
    "slashed": "dir/",
    "dotted": f"{ROOT}/dir/./sub/../file",
    "through_missing": "missing/../dir",
    "through_file": "dir/file/../../dir2",
    "hidden/out": "../../outside",
    "new\nlink": "names/new\nline",
    "\udcffodd": "names/\udcff\udcfe",
}


class Tree(NamedTuple):
    """Where the tree stands, and what lies beside it."""

    root: str
    outside: str

    def fill(self, text: str) -> str:
        """Return a row's text with the tree's folders filled in."""
        return text.replace(ROOT, self.root).replace(OUTSIDE, self.outside)


class Resolved(NamedTuple):
    """A path that has a normal form."""

    text: str
    normal: str
    reason: str
    operation: str | None = None


class Unresolved(NamedTuple):
    """A path that has none."""

    text: str
    word: str
    reason: str
    operation: str | None = None
    code: str = "unsafe_path"


def path_name(row: Resolved | Unresolved) -> str:
    """Return the name of a row's test."""
    return row.reason.replace(" ", "_")


def build_tree(above: str) -> Tree:
    """Make the tree in an empty folder."""
    above = os.path.realpath(above)
    tree = Tree(f"{above}/tree", f"{above}/outside")
    for folder in (tree.root, tree.outside, *(f"{tree.root}/{name}" for name in FOLDERS)):
        os.mkdir(folder)
    for name in (*FILES, *(f"names/{name}" for name in NAMES)):
        _touch(f"{tree.root}/{name}")
    _touch(f"{tree.outside}/secret")
    for name, leads_to in (LINKS | _chain()).items():
        os.symlink(tree.fill(leads_to), f"{tree.root}/{name}")
    os.mkfifo(f"{tree.root}/pipe")
    return tree


def _chain() -> dict[str, str]:
    return {f"chain/{number}": str(number - 1) for number in range(1, LONGEST_CHAIN + 2)}


def _touch(path: str) -> None:
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY))
