"""`Path.glob` and `rglob`: a folder that may not be read is refused, not empty."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from guard.confined import confined

from democrai_osguard.guard import process_guard_context

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

REFUSED: dict[str, tuple[Callable[[Path], Iterable[Path]], str]] = {
    "glob": (lambda at: (at / "out").glob("*"), "out"),
    "glob of everything beneath": (lambda at: (at / "out").glob("**/*"), "out"),
    "rglob": (lambda at: (at / "out").rglob("*.txt"), "out"),
    "glob of one name": (lambda at: (at / "out").glob("file"), "out"),
    "glob back out": (lambda at: (at / "in").glob("../out/*"), "out"),
    "glob of any case": (lambda at: (at / "out").glob("FILE", **_any_case()), "out"),
    "a link that leads out": (lambda at: (at / "in/link").glob("*"), "out"),
}
FOUND: dict[str, tuple[Callable[[Path], Iterable[Path]], list[str]]] = {
    "glob": (lambda at: (at / "in").glob("*"), ["in/file", "in/folder", "in/link"]),
    "rglob": (lambda at: (at / "in").rglob("file"), ["in/file", "in/folder/file"]),
    "glob of a path": (lambda at: (at / "in").glob("folder/f*"), ["in/folder/file"]),
    "glob of what is not there": (lambda at: (at / "in").glob("missing/*"), []),
}


def _any_case() -> dict[str, bool]:
    return {"case_sensitive": False} if "case_sensitive" in _GLOB.__code__.co_varnames else {}


_GLOB = Path.glob


@pytest.fixture
def places(tmp_path: Path) -> Path:
    for name in ("in/folder", "out"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("in/file", "in/folder/file", "out/file"):
        (tmp_path / name).touch()
    os.symlink(tmp_path / "out", tmp_path / "in/link")
    return tmp_path


def _search(places: Path, search: Callable[[Path], Iterable[Path]]) -> object:
    def check() -> object:
        with process_guard_context("m", "module", allowed_paths=[places / "in"]):
            try:
                found = sorted(str(each) for each in search(places))
            except PermissionError as error:
                return [getattr(error, "code", ""), getattr(error, "operation", ""), error.target]  # type: ignore[attr-defined]
        return [each.removeprefix(f"{places}/") for each in found]

    return confined(check)


@pytest.mark.parametrize("way", REFUSED)
def test_a_search_where_nothing_may_be_read_is_refused(places: Path, way: str) -> None:
    search, place = REFUSED[way]
    found = _search(places, search)
    assert isinstance(found, list)
    code, operation, target = found
    assert (code, operation) == ("sandbox_filesystem_denied", "read")
    assert target.startswith(str(places / place))


@pytest.mark.parametrize("way", FOUND)
def test_a_search_finds_what_may_be_read(places: Path, way: str) -> None:
    search, names = FOUND[way]
    assert _search(places, search) == names
