"""The launcher's modules, found without a search: the same ones, and never those of yesterday."""

from __future__ import annotations

import compileall
import os
import py_compile
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import democrai_osguard_launcher

PACKAGE = Path(democrai_osguard_launcher.__file__).parent
NAME = PACKAGE.name
LOOK = """
import sys; sys.path.insert(0, {folder!r})
from {package} import nearby
if {use}: nearby.use()
import {package}.errors as errors
print(type(errors.__loader__).__name__, errors.__file__, errors.__cached__, errors.__package__)
print(errors.Exit.USAGE)
"""


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    ours = shutil.ignore_patterns("__pycache__")
    copied = Path(shutil.copytree(PACKAGE, tmp_path / NAME, ignore=ours))
    compileall.compile_dir(
        copied, quiet=1, invalidation_mode=py_compile.PycInvalidationMode.TIMESTAMP
    )
    return copied


def seen(copy: Path, *options: str, use: bool = True) -> list[str]:
    script = LOOK.format(folder=str(copy.parent), package=NAME, use=use)
    python = [sys.executable, "-I", "-S", "-B", *options, "-c", script]
    return subprocess.run(python, capture_output=True, text=True, check=True).stdout.split()


def compiled(copy: Path) -> Path:
    return next((copy / "__pycache__").glob(f"errors.{sys.implementation.cache_tag}.pyc"))


def test_a_module_is_what_the_interpreter_would_find(copy: Path) -> None:
    ordinary, ours = seen(copy, use=False), seen(copy)
    assert (ordinary[0], ours[0]) == ("SourceFileLoader", "_Loader")
    assert ours[1:] == ordinary[1:]
    assert ours[-1] == "64"


def test_what_was_compiled_is_what_runs(copy: Path) -> None:
    """The control: with the same time and size the interpreter believes it as well."""
    file, status = copy / "errors.py", (copy / "errors.py").stat()
    file.write_text(file.read_text().replace("USAGE = 64", "USAGE = 65"))
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert seen(copy)[-1] == seen(copy, use=False)[-1] == "64"


@pytest.mark.parametrize("seconds", [0, 1])
def test_a_file_that_has_changed_since_is_read(copy: Path, seconds: int) -> None:
    file, status = copy / "errors.py", (copy / "errors.py").stat()
    longer = "USAGE = 65" if seconds else "USAGE =  65"  # told by its age, or by its size
    file.write_text(file.read_text().replace("USAGE = 64", longer))
    later = status.st_mtime_ns + seconds * 10**9
    os.utime(file, ns=(status.st_atime_ns, later))
    assert seen(copy)[-1] == "65"


def test_without_anything_compiled_it_is_read(copy: Path) -> None:
    compiled(copy).unlink()
    assert seen(copy)[-1] == "64"


def test_what_another_interpreter_compiled_is_not_run(copy: Path) -> None:
    file = compiled(copy)
    file.write_bytes(b"\0\0\r\n" + file.read_bytes()[4:])
    assert seen(copy)[-1] == "64"


def test_what_is_checked_by_its_hash_is_left_to_the_interpreter(copy: Path) -> None:
    checked = py_compile.PycInvalidationMode.CHECKED_HASH
    py_compile.compile(str(copy / "errors.py"), invalidation_mode=checked)
    (copy / "errors.py").write_text((copy / "errors.py").read_text().replace("64", "65"))
    assert seen(copy)[-1] == "65"


@pytest.mark.parametrize("options", [("-O",), ("-X", "pycache_prefix=/nowhere")])
def test_what_is_compiled_to_another_place_is_left_to_the_interpreter(
    copy: Path, options: tuple[str, ...]
) -> None:
    assert seen(copy, *options)[0] == "SourceFileLoader"


def test_the_program_uses_it(repo: Path) -> None:
    script = (repo / "launcher/democrai-launch").read_text()
    assert script.index("nearby.use()") < script.index("democrai_osguard_launcher.main")
