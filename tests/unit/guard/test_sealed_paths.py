"""The guard's own walk along a path agrees with the one that rules are normalised by."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from democrai_osguard.errors import UnsafePath
from democrai_osguard.guard.sealed import paths
from democrai_osguard.targets.filesystem import resolve_path

if TYPE_CHECKING:
    from pathlib import Path

_PARTS = ("a", "b", "file", "up", "loop", "away", "missing", "..", ".", "")


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with folders, a file, and links of every kind."""
    root = tmp_path_factory.mktemp("tree")
    (root / "a" / "b").mkdir(parents=True)
    (root / "a" / "file").write_text("")
    (root / "a" / "up").symlink_to("..")
    (root / "a" / "loop").symlink_to("loop")
    (root / "a" / "b" / "away").symlink_to("/usr/lib")
    (root / "b").symlink_to("a/b")
    return root


def _outcome(resolve: object, path: str, *, follow: bool) -> str:
    try:
        return str(resolve(path, follow=follow))  # type: ignore[operator] # one of the two
    except (UnsafePath, Warning) as error:
        return str(error.args[-1]).rpartition(": ")[2]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(st.sampled_from(_PARTS), max_size=6), st.booleans())
def test_both_walks_lead_to_the_same_place(tree: Path, parts: list[str], follow: bool) -> None:
    path = os.path.join(str(tree), *parts) if parts else str(tree)
    paths.forget()
    ours = _outcome(paths.resolve, path, follow=follow)
    assert ours == _outcome(resolve_path, path, follow=follow)
    assert ours == _outcome(paths.resolve, path, follow=follow), "remembered wrongly"


@pytest.mark.parametrize("path", ["/proc/self/root/etc", "/proc/self/cwd", "/proc/1/root/etc", "/"])
def test_both_agree_about_proc(path: str) -> None:
    paths.forget()
    assert _outcome(paths.resolve, path, follow=True) == _outcome(resolve_path, path, follow=True)
