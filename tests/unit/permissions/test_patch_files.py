"""Which files a patch touches."""

from __future__ import annotations

import pytest

from democrai_osguard.permissions.patch_files import PatchedFile, patched_files

GIT = """\
diff --git a/src/old.py b/src/new.py
similarity index 90%
rename from src/old.py
rename to src/new.py
--- a/src/old.py
+++ b/src/new.py
@@ -1 +1 @@
-a
+b
"""
DELETED = "--- a/gone.txt\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n"
CREATED = "--- /dev/null\n+++ b/made.txt\n@@ -0,0 +1 @@\n+x\n"
PLAIN = "--- notes.txt\t2024-01-01 00:00:00\n+++ notes.txt\t2024-01-02 00:00:00\n@@ -1 +1 @@\n"
MARKED = """\
*** Begin Patch
*** Update File: src/app.py
@@ def main
-a
+b
*** Add File: docs/new.md
+hello
*** Delete File: old.txt
*** Update File: from.py
*** Move to: to.py
*** End Patch
"""


@pytest.mark.parametrize(
    ("patch", "files"),
    [
        (GIT, [("write", "src/new.py"), ("delete", "src/old.py")]),
        (DELETED, [("delete", "gone.txt")]),
        (CREATED, [("write", "made.txt")]),
        (PLAIN, [("write", "notes.txt")]),
        (DELETED + CREATED, [("delete", "gone.txt"), ("write", "made.txt")]),
        (MARKED, [("write", "src/app.py"), ("write", "docs/new.md"), ("delete", "old.txt"),
                  ("delete", "from.py"), ("write", "to.py")]),
        (MARKED.replace("\n", "\r\n"), [("write", "src/app.py"), ("write", "docs/new.md"),
                                        ("delete", "old.txt"), ("delete", "from.py"),
                                        ("write", "to.py")]),
        ("--- a/x\n+++ c/x\n", [("write", "c/x"), ("write", "a/x")]),
        ("diff --git a/x y b/x y\nold mode 100644\nnew mode 100755\n", [("write", "x y")]),
        ("diff --git a/x b/x\nnew file mode 100644\n", [("write", "x")]),
        ("diff --git a/x b/x\ndeleted file mode 100644\n", [("delete", "x")]),
        ("diff --git a/x b/y\ndeleted file mode 100644\n--- a/z\n", [("delete", "z")]),
        ("diff --git a/x b/x\ndeleted file mode 100644\n" + DELETED,
         [("delete", "gone.txt"), ("delete", "x")]),
        ('diff --git "a/\\303\\274" "b/\\303\\274"\nGIT binary patch\n', [("write", "\u00fc")]),
        ('--- "a/\\303\\274.txt"\n+++ "b/\\303\\274.txt"\n', [("write", "\u00fc.txt")]),
        ('--- "a/tab\\there"\n+++ "b/tab\\there"\n', [("write", "tab\there")]),
        ("copy from a.txt\ncopy to b.txt\n", [("read", "a.txt"), ("write", "b.txt")]),
        ('rename to "\\"x"\n', [("write", '"x')]),
        ("no patch at all\n", []),
        ("", []),
        ("--- a/x", []),
    ],
)  # fmt: skip
def test_a_patch_names_its_files(patch: str, files: list[tuple[str, str]]) -> None:
    assert list(patched_files(patch)) == [PatchedFile(*file) for file in files]
