"""Which files a patch touches."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from democrai_osguard.permissions.patch_files import PatchedFile, patched_files

if TYPE_CHECKING:
    from pathlib import Path

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
        ("--- a/x", [("write", "a/x"), ("write", "x")]),
    ],
)  # fmt: skip
def test_a_patch_names_its_files(patch: str, files: list[tuple[str, str]]) -> None:
    assert list(patched_files(patch)) == [PatchedFile(*file) for file in files]


@pytest.mark.parametrize(
    ("patch", "files"),
    [
        ("--- a/x\r+++ b/x\r@@ -1 +1 @@\r-a\r+b\r", [("write", "x")]),
        ("--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+b\n",
         [("write", "x")]),
        ("\ufeff*** Update File: x\n", [("write", "x")]),
        ("\ufeff--- a/x\n+++ b/x\n", [("write", "x")]),
        ("  *** Update File: x\n", [("write", "x")]),
        ("*** Update File: a\u2028*** Delete File: b\n", [("write", "a"), ("delete", "b")]),
        ("*** Update File:\n", [("write", "")]),
        ("--- /etc/passwd\n+++ /etc/passwd\n", [("write", "/etc/passwd")]),
        ("--- a/../../x\n+++ b/../../x\n", [("write", "../../x")]),
        # What `patch` makes out, though nothing stands where it should.
        ("+++ x\n@@ -0,0 +1 @@\n+a\n", [("write", "x")]),
        ("--- x\nwords\n+++ y\n@@ -1 +1 @@\n-a\n+b\n", [("write", "x"), ("write", "y")]),
        ("+++ y\n--- x\n@@ -1 +1 @@\n-a\n+b\n", [("write", "x"), ("write", "y")]),
        ("  --- x\n  +++ y\n  @@ -1 +1 @@\n  -a\n  +b\n", [("write", "x"), ("write", "y")]),
        ("Index: x\n====\n@@ -1 +1 @@\n-a\n+b\n", [("write", "x")]),
        ("*** x\t2020\n--- y\t2020\n*****\n*** 1 ****\n! a\n--- 1 ----\n! b\n",
         [("write", "x"), ("write", "y")]),
        ("diff --git " + "a " * 20_000, [("write", "")]),
    ],
)  # fmt: skip
def test_what_some_program_makes_out_is_named_too(patch: str, files: list[tuple[str, str]]) -> None:
    assert {*patched_files(patch)} >= {PatchedFile(*file) for file in files}


def test_lines_of_content_name_no_file() -> None:
    patch = (
        "--- a/query.sql\n+++ b/query.sql\n@@ -1,4 +1,3 @@\n--- a comment\n-- another\n"
        "+++ counted\n same\n"
    )
    assert [file.path for file in patched_files(patch)] == ["query.sql"]
    marked = "*** Begin Patch\n*** Update File: x\n@@ def main\n--- gone\n*** End Patch\n"
    assert [file.path for file in patched_files(marked)] == ["x"]


def test_git_s_own_patches_are_read_as_git_reads_them(tmp_path: Path) -> None:
    def git(*words: str) -> str:
        command = ("git", "-c", "user.name=a", "-c", "user.email=a@b", *words)
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, check=True)
        return os.fsdecode(done.stdout)

    names = ["plain", "with space", "t\tab", "\u00fc", 'q"uote', "back\\slash", "sub/dir/file"]
    git("init", "-q")
    (tmp_path / "sub/dir").mkdir(parents=True)
    for name in [*names, "gone", "old name", "mode"]:
        (tmp_path / name).write_text(f"{name}\n" * 9)
    git("add", ".")
    git("commit", "-qm", "first")
    for name in names:
        (tmp_path / name).write_text(f"{name}\nnew\n")
    (tmp_path / "gone").unlink()
    (tmp_path / "old name").rename(tmp_path / "new name")
    (tmp_path / "mode").chmod(0o755)
    (tmp_path / "made").write_text("made\r\n")
    (tmp_path / "empty").touch()
    git("add", ".")
    found = patched_files(git("diff", "--cached", "-M"))
    expected = {(("write"), name) for name in [*names, "new name", "mode", "made", "empty"]}
    assert {(file.effect, file.path) for file in found} == expected | {
        ("delete", "gone"), ("delete", "old name"),
    }  # fmt: skip
