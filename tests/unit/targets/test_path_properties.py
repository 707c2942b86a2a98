from __future__ import annotations

import errno
import os
import tempfile
from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from democrai_osguard import TargetError, normalize_target
from democrai_osguard.errors import UnsafePath

if TYPE_CHECKING:
    from collections.abc import Sequence

NAMES = ("a", "b", "c")
OPERATIONS = (None, "read", "create", "modify", "delete", "execute")

parts = st.sampled_from((*NAMES, *NAMES, "..", ".", "", "\udcff", "n\n"))
relative = st.lists(parts, min_size=1, max_size=5).map("/".join).filter(bool)
places = st.lists(st.sampled_from(NAMES), min_size=1, max_size=3).map("/".join)
contents = st.one_of(
    st.just("folder"),
    st.just("folder"),
    st.just("file"),
    relative.map(lambda text: f"link {text}"),
    relative.map(lambda text: f"absolute {text}"),
)
trees = st.lists(st.tuples(places, contents), max_size=8)
walks = st.lists(st.tuples(relative, st.sampled_from(OPERATIONS)), min_size=4, max_size=12)


def build(root: str, entries: Sequence[tuple[str, str]]) -> None:
    """Make what can be made of the entries; one that stands in the way of another wins."""
    for place, content in entries:
        kind, _, text = content.partition(" ")
        path = f"{root}/{place}"
        try:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            if kind == "folder":
                os.mkdir(path)
            elif kind == "file":
                os.close(os.open(path, os.O_CREAT | os.O_EXCL))
            else:
                os.symlink(text if kind == "link" else f"{root}/{text}", path)
        except OSError:
            continue


def kernel_name(path: str, *, follow: bool) -> str | None:
    """Return where the kernel says that a path leads, None where it leads nowhere."""
    flags = os.O_PATH if follow else os.O_PATH | os.O_NOFOLLOW
    try:
        descriptor = os.open(path, flags)
    except OSError as error:
        return "loop" if error.errno == errno.ELOOP else None
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)


def never_climbs(normal: str) -> bool:
    """Tell whether a path is the root, or names behind single slashes, none of them dots."""
    front, *names = normal.split("/")
    return normal == "/" or (not front and not {"", ".", ".."}.intersection(names))


def check_walk(path: str, operation: str | None) -> None:
    """Compare one normal path with what the kernel says, and with itself."""
    follow = operation not in {"create", "delete"}
    known = kernel_name(path, follow=follow)
    try:
        normal = normalize_target("filesystem", path, operation=operation)
    except UnsafePath:
        assert known in {None, "loop"}
        return
    assert known in {None, normal}
    assert normalize_target("filesystem", normal, operation=operation) == normal
    assert never_climbs(normal)
    folders = normal if follow else os.path.dirname(normal)
    assert os.path.realpath(folders) == folders


@given(trees, walks)
@settings(max_examples=200, deadline=None)
def test_a_path_leads_where_the_kernel_says_without_links_or_dots(
    entries: list[tuple[str, str]], paths: list[tuple[str, str | None]]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = os.path.realpath(folder)
        build(root, entries)
        for path, operation in paths:
            check_walk(f"{root}/{path}", operation)


@given(st.one_of(st.text(max_size=30), st.text("/.~{}a\0\udcff ", max_size=12)), st.booleans())
@settings(max_examples=600, deadline=None)
def test_normalising_any_text_twice_changes_nothing(text: str, based: bool) -> None:
    try:
        normal = normalize_target("filesystem", text, base="/srv/none" if based else None)
    except TargetError:
        return
    assert normalize_target("filesystem", normal) == normal
    assert never_climbs(normal)


@given(st.binary(max_size=20))
@settings(max_examples=800, deadline=None)
def test_undecodable_bytes_survive(raw: bytes) -> None:
    try:
        normal = normalize_target("filesystem", b"/srv/none/" + raw)
    except TargetError:
        return
    kept = b"/".join(part for part in raw.split(b"/") if part not in {b"", b"."})
    assert os.fsencode(normal) == b"/".join([b"/srv/none", kept] if kept else [b"/srv/none"])


@given(trees, relative, relative)
@settings(max_examples=150, deadline=None)
def test_a_link_inside_a_root_that_leads_out_is_outside(
    entries: list[tuple[str, str]], inner: str, outer: str
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = os.path.realpath(folder)
        os.mkdir(f"{root}/a")
        build(root, entries)
        for path in (f"{root}/a/{inner}", f"{root}/{outer}"):
            known = kernel_name(path, follow=True)
            if known in {None, "loop"}:
                continue
            assert known is not None
            inside = normalize_target("filesystem", path).startswith(f"{root}/a/")
            assert inside is known.startswith(f"{root}/a/")
