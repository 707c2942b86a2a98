"""Every code that the product says stands on the page of codes, and none that it does not say."""

from __future__ import annotations

import ast
import functools
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PACKAGES = (
    "democrai_osguard",
    "launcher/democrai_osguard_launcher",
    "helper/democrai_osguard_helper",
)
ROW = re.compile(r"^\| ((?:`[a-z_0-9]+`(?:, )?)+) \|", re.MULTILINE)
OURS = re.compile(r"(?:sandbox|external_access)_[a-z_]+(?=:|$)")
# Where a call says a code: the position of the argument.
SAYS = {"Allow": 0, "Refusal": 0, "PeerRefused": 0, "Refused": 0, "_notice": 1, "_end": 1}
_LEAST = 50  # codes; fewer would mean that the source is not read


def _sources(repo: Path) -> Iterator[ast.AST]:
    for package in PACKAGES:
        for path in sorted((repo / package).rglob("*.py")):
            yield from ast.walk(ast.parse(path.read_text(encoding="utf-8")))


def _text(node: ast.AST | None) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def _codes(node: ast.AST) -> Iterator[str | None]:
    """Yield the codes that a node says: of a class, in a call, or by its prefix."""
    if isinstance(node, ast.ClassDef):
        for line in node.body:
            targets = line.targets if isinstance(line, ast.Assign) else [getattr(line, "target", 0)]
            if any(isinstance(each, ast.Name) and each.id == "code" for each in targets):
                yield _text(getattr(line, "value", None))
    elif isinstance(node, ast.Call):
        name = getattr(node.func, "id", getattr(node.func, "attr", ""))
        if len(node.args) > SAYS.get(name, len(node.args)):
            yield _text(node.args[SAYS[name]])
    elif isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "_CODES":
        yield from map(_text, getattr(node.value, "values", ()))
    elif isinstance(node, ast.Constant):
        found = OURS.match(_text(node) or "")
        yield found and found[0]


@functools.cache
def said(repo: Path) -> set[str]:
    """Return every stable code in the source."""
    return {code for node in _sources(repo) for code in _codes(node) if code}


def explained(repo: Path) -> list[str]:
    """Return the codes that the page explains, in its order."""
    page = (repo / "docs/errors.md").read_text(encoding="utf-8")
    return [code for row in ROW.findall(page) for code in re.findall(r"`([a-z_0-9]+)`", row)]


def test_every_code_of_the_product_is_explained(repo: Path) -> None:
    codes = said(repo)
    assert len(codes) >= _LEAST
    assert sorted(codes - set(explained(repo))) == []


def test_every_code_that_is_explained_is_one_of_the_product(repo: Path) -> None:
    codes = [code for code in explained(repo) if not code.isdigit()]
    assert sorted(set(codes) - said(repo)) == []
    assert len(codes) == len(set(codes))
