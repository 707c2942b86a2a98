"""The table of statements is true: each has a test, and each test that it names exists."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

ROW = re.compile(r"^\| (?!statement|---)(.+) \| (.+) \|$", re.MULTILINE)
TEST = re.compile(r"`([\w/]+\.py)::(\w+)`")
_LEAST = 80  # statements; fewer would mean that the table is not read


def rows(repo: Path) -> list[tuple[str, str]]:
    return ROW.findall((repo / "docs/statements.md").read_text(encoding="utf-8"))


def test_every_statement_names_a_test(repo: Path) -> None:
    found = rows(repo)
    assert len(found) >= _LEAST
    assert [words for words, tests in found if not TEST.search(tests)] == []
    assert len({words for words, _ in found}) == len(found)


def test_every_test_that_is_named_exists(repo: Path) -> None:
    missing = []
    known: dict[str, set[str]] = {}
    for _, tests in rows(repo):
        assert TEST.sub("", tests).strip(", ") == "", tests
        for file, name in TEST.findall(tests):
            if file not in known:
                tree = ast.parse((repo / "tests" / file).read_text(encoding="utf-8"))
                known[file] = {
                    node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)
                }
            if name not in known[file]:
                missing.append(f"{file}::{name}")
    assert missing == []
