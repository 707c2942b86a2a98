"""What the fuzzers found, each case by itself."""

from __future__ import annotations

from fuzz import reading

from democrai_osguard.permissions.patch_files import PatchedFile, patched_files

_CHANGE = "@@ -1 +1 @@\n-old\n+new\n"


def test_of_two_names_in_a_patch_both_count() -> None:
    patch = f"--- a/short\n+++ b/much-longer\n{_CHANGE}"
    assert PatchedFile("write", "short") in patched_files(patch)
    assert PatchedFile("write", "much-longer") in patched_files(patch)
    reading.patch(patch)
