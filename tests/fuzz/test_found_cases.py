"""What the fuzzers found, each case by itself."""

from __future__ import annotations

import pytest
from fuzz import reading

from democrai_osguard.permissions.patch_files import PatchedFile, patched_files

pytestmark = pytest.mark.needs("git")  # which says what a patch touches

_CHANGE = "@@ -1 +1 @@\n-old\n+new\n"


def test_of_two_names_in_a_patch_both_count() -> None:
    patch = f"--- a/short\n+++ b/much-longer\n{_CHANGE}"
    assert PatchedFile("write", "short") in patched_files(patch)
    assert PatchedFile("write", "much-longer") in patched_files(patch)
    reading.patch(patch)


def test_a_name_is_read_trimmed_and_untrimmed() -> None:
    patch = "diff --git a/x b/ y\nsimilarity index 100%\nrename from x\nrename to  y\n"
    assert PatchedFile("write", " y") in patched_files(patch)
    assert PatchedFile("write", "y") in patched_files(patch)
    reading.patch(patch)


def test_git_headers_name_files_without_content() -> None:
    patch = "diff --git a/x\t b/x\t\nold mode 100644\nnew mode 100755\n"
    assert PatchedFile("write", "x\t") in patched_files(patch)
    reading.patch(patch)
    reading.patch("diff --git 0a/x b/x\nold mode 100644\nnew mode 100755\n")


def test_half_a_rename_explains_nothing() -> None:
    patch = "diff --git a/x b/y\nsimilarity index 90%\nrename from x\n+++ b/y\n" + _CHANGE
    assert PatchedFile("write", "y") in patched_files(patch)
    reading.patch(patch)


def test_a_rename_may_lead_to_a_name_with_a_tab() -> None:
    patch = "diff --git a/x b/\ty\nsimilarity index 100%\nrename from x\nrename to \ty\n"
    assert PatchedFile("write", "\ty") in patched_files(patch)
    reading.patch(patch)
