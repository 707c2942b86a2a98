from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from unit.targets import path_vectors as table
from unit.targets.path_tree import Resolved, Tree, Unresolved, path_name

from democrai_osguard import TargetError, normalize_target

RESOLVED = (*table.PLAIN_PATHS, *table.LINKED_PATHS, *table.NAMED_PATHS, *table.LONGEST_PATHS)
UNRESOLVED = (*table.UNSAFE_PATHS, *table.INVALID_PATHS)
FEWEST_VECTORS = 80


@pytest.mark.parametrize("row", RESOLVED, ids=path_name)
def test_a_path_is_where_the_object_really_is(row: Resolved, tree: Tree) -> None:
    normal = normalize_target("filesystem", tree.fill(row.text), operation=row.operation)
    assert normal == tree.fill(row.normal)


@pytest.mark.parametrize("row", RESOLVED, ids=path_name)
def test_a_normal_path_is_its_own_normal_form(row: Resolved, tree: Tree) -> None:
    normal = tree.fill(row.normal)
    assert normalize_target("filesystem", normal, operation=row.operation) == normal


@pytest.mark.parametrize("row", UNRESOLVED, ids=path_name)
def test_a_path_without_a_normal_form_is_an_error_with_its_reason(
    row: Unresolved, tree: Tree
) -> None:
    with pytest.raises(TargetError) as caught:
        normalize_target("filesystem", tree.fill(row.text), operation=row.operation)
    assert caught.value.code == row.code
    assert row.word in caught.value.reason


@pytest.mark.parametrize("row", table.LINKED_PATHS, ids=path_name)
def test_the_kernel_agrees_where_a_link_leads(row: Resolved, tree: Tree) -> None:
    assert os.path.realpath(tree.fill(row.text)) == tree.fill(row.normal)


def test_bytes_are_the_same_path_as_their_text(tree: Tree) -> None:
    text = f"{tree.root}/names/\udcff\udcfe"
    assert normalize_target("filesystem", os.fsencode(text)) == text


def test_a_path_object_is_a_path(tree: Tree) -> None:
    assert normalize_target("filesystem", Path(tree.root, "in")) == f"{tree.root}/dir/sub"


def test_a_bytes_path_with_a_nul_is_an_error() -> None:
    with pytest.raises(TargetError, match="NUL"):
        normalize_target("filesystem", b"/srv\0")


@pytest.mark.parametrize("resource_type", ["filesystem", "network", "system_dependency"])
@pytest.mark.parametrize("value", [None, 5])
def test_what_is_no_text_is_no_target(resource_type: str, value: Any) -> None:  # noqa: ANN401 - or anything
    with pytest.raises(TargetError) as caught:
        normalize_target(resource_type, value)
    assert caught.value.code == "invalid_target"


def test_a_folder_that_cannot_be_searched_hides_what_is_beneath(hidden: str) -> None:
    assert normalize_target("filesystem", f"{hidden}/out/x/") == f"{hidden}/out/x"


def test_nothing_climbs_out_of_a_folder_that_cannot_be_searched(hidden: str) -> None:
    with pytest.raises(TargetError) as caught:
        normalize_target("filesystem", f"{hidden}/out/../x")
    assert caught.value.code == "unsafe_path"


def test_the_table_has_enough_distinct_rows() -> None:
    rows = [(row.text, row.operation) for row in (*RESOLVED, *UNRESOLVED)]
    assert len(set(rows)) == len(rows) >= FEWEST_VECTORS
