"""Libraries that people use, doing real work under the guard."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from guard.confined import confined

from democrai_osguard.access import Rule
from democrai_osguard.guard import process_guard_context

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return an allowed folder beside one that is not, with the temporary folder inside it."""
    (tmp_path / "in" / "temp").mkdir(parents=True)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "data.csv").write_text("a,b\n1,2\n")
    monkeypatch.setenv("DEMOCRAI_TEMP_DIR", str(tmp_path / "in" / "temp"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "in" / "temp"))
    return str(tmp_path / "in")


def guarded(place: str, work: Callable[[str], object], **options: Any) -> Any:  # noqa: ANN401
    """Return what the work returns under a guard that allows its folder."""

    def check() -> object:
        with process_guard_context("m", "module", allowed_paths=[place], **options):
            return work(place)

    return confined(check)


def refused(work: Callable[[], object]) -> str:
    """Return the code of the refusal."""
    try:
        work()
    except PermissionError as error:
        return str(getattr(error, "code", error))
    return "allowed"


def test_sqlite_works_inside_and_stays_inside(place: str) -> None:
    def work(folder: str) -> object:
        import sqlite3  # noqa: PLC0415 - imported where it is guarded

        with sqlite3.connect(f"{folder}/a.db") as database:
            database.execute("create table t (x)")
            database.execute("insert into t values (7)")
            database.execute(f"attach '{folder}/b.db' as other")
            database.execute("create table other.u as select * from t")
        return [
            database.execute("select x from other.u").fetchone()[0],
            refused(lambda: sqlite3.connect(f"{folder}/../out/c.db")),
        ]

    assert guarded(place, work) == [7, "sandbox_filesystem_denied"]


def test_numpy_and_pandas_load_and_work(place: str) -> None:
    pytest.importorskip("pandas")

    def work(folder: str) -> object:
        import numpy as np  # noqa: PLC0415 - imported where it is guarded
        import pandas as pd  # type: ignore[import-untyped] # noqa: PLC0415 - as above

        np.save(f"{folder}/x.npy", np.arange(4))
        frame = pd.DataFrame({"a": [1, 2]})
        frame.to_csv(f"{folder}/x.csv", index=False)
        return [
            int(np.load(f"{folder}/x.npy").sum()),
            int(pd.read_csv(f"{folder}/x.csv")["a"].sum()),
            refused(lambda: pd.read_csv(f"{folder}/../out/data.csv")),
            refused(lambda: np.load(f"{folder}/../out/data.csv")),
        ]

    denied = "sandbox_filesystem_denied"
    assert guarded(place, work) == [6, 3, denied, denied]


@pytest.mark.parametrize("name", ["numpy", "pandas", "PIL.Image"])
def test_a_library_with_native_code_is_loaded_under_the_guard(name: str) -> None:
    pytest.importorskip(name.partition(".")[0])
    script = (
        "from democrai_osguard.guard import process_guard_context\n"
        f"with process_guard_context('m', 'module'): import {name}"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_pillow_draws_and_reads_back(place: str) -> None:
    pytest.importorskip("PIL")

    def work(folder: str) -> object:
        from PIL import Image  # noqa: PLC0415 - imported where it is guarded

        Image.new("RGB", (2, 3), "red").save(f"{folder}/x.png")
        with Image.open(f"{folder}/x.png") as image:
            size = list(image.size)
        return [size, refused(lambda: Image.open(f"{folder}/../out/data.csv"))]

    assert guarded(place, work) == [[2, 3], "sandbox_filesystem_denied"]


def test_archives_are_packed_and_unpacked(place: str) -> None:
    def work(folder: str) -> object:
        import shutil  # noqa: PLC0415 - imported where it is guarded
        import tarfile  # noqa: PLC0415 - as above
        import zipfile  # noqa: PLC0415 - as above

        os.makedirs(f"{folder}/tree/deep")
        with open(f"{folder}/tree/deep/leaf", "w", encoding="utf-8") as file:
            file.write("x")
        shutil.make_archive(f"{folder}/packed", "zip", f"{folder}/tree")
        shutil.make_archive(f"{folder}/packed", "gztar", f"{folder}/tree")
        with zipfile.ZipFile(f"{folder}/packed.zip") as archive:
            archive.extractall(f"{folder}/from_zip")  # noqa: S202 - our own archive
        with tarfile.open(f"{folder}/packed.tar.gz") as tar:
            if hasattr(tarfile, "data_filter"):  # Debian 12's Python has no filters yet
                tar.extraction_filter = tarfile.data_filter
            tar.extractall(f"{folder}/from_tar")  # noqa: S202 - our own archive
        shutil.rmtree(f"{folder}/tree")
        return sorted(
            os.path.relpath(os.path.join(root, name), folder)
            for root, _, names in os.walk(folder)
            for name in names
        )

    found = guarded(place, work)
    assert "from_zip/deep/leaf" in found
    assert "from_tar/deep/leaf" in found
    assert "tree/deep/leaf" not in found


def test_temporary_files_come_and_go(place: str) -> None:
    def work(folder: str) -> object:
        import tempfile  # noqa: PLC0415 - imported where it is guarded

        tempfile.tempdir = None  # looked up anew, whatever this process has found before
        with tempfile.TemporaryDirectory() as inside, tempfile.NamedTemporaryFile() as file:
            file.write(b"x")
            with open(f"{inside}/y", "w", encoding="utf-8") as other:
                other.write("y")
            names = [inside.startswith(folder), file.name.startswith(folder)]
        with tempfile.TemporaryFile() as unnamed:
            unnamed.write(b"z")
        return [*names, os.path.exists(inside)]

    assert guarded(place, work) == [True, True, False]


def test_copying_needs_no_right_to_read_the_destination(place: str) -> None:
    rules = [
        Rule("filesystem", "read", f"{place}/a"),  # type: ignore[arg-type]
        Rule("filesystem", "create", f"{place}/b"),  # type: ignore[arg-type]
    ]
    for name in ("a", "b"):
        os.mkdir(f"{place}/{name}")
    with open(f"{place}/a/x", "w", encoding="utf-8") as file:
        file.write("x")

    def check() -> object:
        import shutil  # noqa: PLC0415 - imported where it is guarded

        with process_guard_context("m", "module", rules, include_runtime_paths=False):
            shutil.copyfile(f"{place}/a/x", f"{place}/b/x")
            return refused(lambda: shutil.copyfile(f"{place}/b/x", f"{place}/a/y"))

    assert confined(check) == "sandbox_filesystem_denied"
    assert os.path.exists(f"{place}/b/x")


def test_multiprocessing_runs_where_processes_are_allowed(place: str) -> None:
    rules = [Rule("filesystem", "execute", os.path.realpath(sys.executable))]  # type: ignore[arg-type]

    def work(_folder: str) -> object:
        import multiprocessing  # noqa: PLC0415 - imported where it is guarded

        with multiprocessing.get_context("fork").Pool(1) as pool:
            return pool.map(len, ["ab", "c"])

    assert guarded(place, work, access=rules, allow_subprocess=True) == [2, 1]


def test_pip_installs_a_local_wheel_in_an_install_context(place: str) -> None:
    wheel = _wheel(place)
    python = os.path.realpath(sys.executable)
    rules = [Rule("filesystem", "execute", python)]  # type: ignore[arg-type]

    def work(folder: str) -> object:
        options = ["--no-index", "--no-deps", "--no-cache-dir", "--target", f"{folder}/site"]
        command = [sys.executable, "-m", "pip", "install", "-q", *options, wheel]
        env = {**os.environ, "DEMOCRAI_ACCESS": "forged"}
        done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
        return [done.returncode, done.stderr, os.listdir(f"{folder}/site")]

    code, errors, names = guarded(place, work, access=rules, allow_subprocess=True)
    assert code == 0, errors
    assert "thing.py" in names


def _wheel(folder: str) -> str:
    import zipfile  # noqa: PLC0415 - only here

    path = f"{folder}/thing-1-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr("thing.py", "x = 1\n")
        wheel.writestr(
            "thing-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: thing\nVersion: 1\n"
        )
        wheel.writestr(
            "thing-1.dist-info/WHEEL",
            "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        wheel.writestr("thing-1.dist-info/RECORD", "thing.py,,\nthing-1.dist-info/RECORD,,\n")
    return path
