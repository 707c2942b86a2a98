from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from democrai_osguard import covers

if TYPE_CHECKING:
    from unit.targets.path_tree import Tree


@pytest.mark.parametrize(
    ("rule", "target", "covered"),
    [
        ("$T/dir", "$T/dir", True),
        ("$T/dir", "$T/dir/", True),
        ("$T/dir/", "$T/dir/sub/deep", True),
        ("$T/dir", "$T/dir2", False),
        ("$T/dir", "$T/di", False),
        ("$T/dir", "$T", False),
        ("$T/dir", "$T/Dir/x", False),
        ("$T/dir", "$T/dir/../dir2", False),
        ("$T/dir", "$T/dir2/../dir/x", True),
        ("$T/dir", "$T/in/deep", True),
        ("$T/in", "$T/dir/sub/deep", True),
        ("$T/in", "$T/dir/file", False),
        ("$T", "$T/out/secret", False),
        ("$T/dir", "$T/dir/out", False),
        ("$T/out", "$O/secret", True),
        ("$T/out", "$T/dir", False),
        ("$T/dir/file", "$T/to_file", True),
        ("$T/missing", "$T/missing/x", True),
        ("$T/missing", "$T/missing2", False),
        ("$T", "$T/dangling_abs", False),
        ("$T/names/new", "$T/names/new\nline", False),
        ("$T/names/\udcff\udcfe", "$T/names/\udcff\udcfe", True),
        ("$T/names/caf\u00e9", "$T/names/cafe\u0301", False),
        ("$T/names/*", "$T/names/-rf", False),
        ("/", "/", True),
        ("/", "$O/secret", True),
        ("//", "$O/secret", True),
        ("$T/slash", "/etc", True),
        ("/etc", "/", False),
    ],
)
def test_a_rule_covers_its_folder_on_name_boundaries(
    tree: Tree, rule: str, target: str, covered: bool
) -> None:
    assert covers("filesystem", tree.fill(rule), tree.fill(target)) is covered


def test_an_unsafe_target_is_covered_by_nothing(tree: Tree) -> None:
    assert covers("filesystem", "/", f"{tree.root}/dir")
    assert not covers("filesystem", "/", f"{tree.root}/missing/../dir")
