"""Real programs under narrow policies: they work, and reach nothing else."""

from __future__ import annotations

import os
import shutil
import sys
import zipfile
from typing import TYPE_CHECKING

import pytest
from host_features import require

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kernel.conftest import Launch

pytestmark = pytest.mark.needs("landlock", "landlock-truncate", "seccomp")

EVERYTHING = ("--read", "--create", "--modify", "--delete")


def on(folder: Path | str, *options: str) -> list[str]:
    return [word for option in options or EVERYTHING for word in (option, str(folder))]


def program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        require(name)
    return found or name


@pytest.fixture
def work(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "work"
    folder.mkdir()
    (tmp_path / "secret").write_text("secret")
    yield folder
    assert (tmp_path / "secret").read_text() == "secret"
    assert {path.name for path in tmp_path.iterdir()} == {"work", "secret"}


def test_git_makes_a_repository_and_commits(launch: Launch, work: Path) -> None:
    git = program("git")
    (work / "file").write_text("content")
    identity = {
        "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@example.org", "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@example.org", "HOME": str(work),
    }  # fmt: skip
    rules = [*on(work), "--execute", git, "--execute", "/usr/lib/git-core"]
    for command in (["init", "-q"], ["add", "file"], ["commit", "-qm", "first"], ["gc", "-q"]):
        result = launch(*rules, "--", "git", *command, cwd=work, environment=identity)
        assert (result.returncode, result.stderr) == (0, "")
    log = launch(*rules, "--", "git", "log", "--format=%s", cwd=work, environment=identity)
    assert log.stdout == "first\n"
    outside = launch(
        *rules, "--", "git", "clone", "-q", work, work.parent / "clone", environment=identity
    )
    assert outside.returncode != 0


@pytest.mark.needs("gcc")
def test_gcc_compiles_and_what_it_made_runs_only_if_declared(launch: Launch, work: Path) -> None:
    (work / "main.c").write_text('#include <stdio.h>\nint main(void) { return puts("ran") < 0; }\n')
    tools = [os.path.realpath(program(name)) for name in ("gcc", "as", "ld")]
    rules = [*on(work), *on("/usr/include", "--read"), *on("/usr/lib/gcc", "--execute")]
    rules += [word for tool in tools for word in on(tool, "--execute")]
    build = launch(
        *rules, "--", "gcc", "main.c", "-o", "main", cwd=work, environment={"TMPDIR": str(work)}
    )
    assert (build.returncode, build.stderr) == (0, "")
    shell = ["--", "sh", "-c", "./main"]
    assert launch(*rules, *shell, cwd=work).returncode == 126
    assert launch(*rules, *on(work / "main", "--execute"), *shell, cwd=work).stdout == "ran\n"


def test_node_reads_its_script_and_nothing_beside_it(launch: Launch, work: Path) -> None:
    program("node")
    (work / "main.js").write_text(
        "const fs = require('fs');\n"
        "fs.writeFileSync('out', 'written');\n"
        "try { fs.readFileSync('../secret') } catch (error) { console.log(error.code) }\n"
        "require('net').connect(9, '127.0.0.1').on('error', e => console.log(e.code))\n"
    )
    result = launch(*on(work), "--", "node", "main.js", cwd=work)
    assert (result.stdout, result.returncode) == ("EACCES\nEACCES\n", 0)
    assert (work / "out").read_text() == "written"


def test_sqlite_keeps_its_database_and_its_journal(launch: Launch, work: Path) -> None:
    program("sqlite3")
    sql = "create table t(x); insert into t values (1); attach '../other' as o; create table o.t(x)"
    result = launch(*on(work), "--", "sqlite3", "data.db", sql, cwd=work)
    assert "unable to open database" in result.stderr
    read = launch(*on(work, "--read"), "--", "sqlite3", "-readonly", "data.db", "select x from t",
                  cwd=work)  # fmt: skip
    assert read.stdout == "1\n"
    write = launch(*on(work, "--read"), "--", "sqlite3", "data.db", "insert into t values (2)",
                   cwd=work)  # fmt: skip
    assert write.returncode != 0


def test_tar_packs_and_unpacks_with_modes_and_times(launch: Launch, work: Path) -> None:
    source = work / "source"
    source.mkdir()
    (source / "file").write_text("content")
    (source / "file").chmod(0o640)
    (source / "link").symlink_to("file")
    os.utime(source / "file", (1000, 1000))
    pack = launch(*on(work), "--", "tar", "-cf", "all.tar", "source", cwd=work)
    assert (pack.returncode, pack.stderr) == (0, "")
    (work / "target").mkdir()
    rules = [*on(work / "all.tar", "--read"), *on(work / "target")]
    unpack = launch(*rules, "--", "tar", "-xpf", "all.tar", "-C", "target", cwd=work)
    assert (unpack.returncode, unpack.stderr) == (0, "")
    status = (work / "target/source/file").stat()
    assert (status.st_mode & 0o777, status.st_mtime) == (0o640, 1000)
    assert os.readlink(work / "target/source/link") == "file"


def test_tar_unpacks_where_it_may_only_create(launch: Launch, work: Path) -> None:
    """Modes and times are refused, contents arrive, and a second run changes nothing."""
    (work / "file").write_text("new")
    assert launch(*on(work), "--", "tar", "-cf", "all.tar", "file", cwd=work).returncode == 0
    target = work / "target"
    target.mkdir()
    rules = [*on(work / "all.tar", "--read"), *on(target, "--create", "--read")]
    unpack = ["--", "tar", "-xf", "all.tar", "--no-same-permissions", "-m", "-C", "target"]
    launch(*rules, *unpack, cwd=work)
    assert (target / "file").read_text() == "new"
    (target / "file").write_text("precious")
    assert launch(*rules, *unpack, "--overwrite", cwd=work).returncode != 0
    assert (target / "file").read_text() == "precious"


def test_a_shell_script_with_pipes_and_files(launch: Launch, work: Path) -> None:
    script = work / "script"
    script.write_text(
        "#!/bin/sh\nset -e\nprintf 'b\\na\\n' > list\nsort list | head -n 1 > first\n"
        "cat first\ncat ../secret 2>/dev/null || echo refused\n"
    )
    script.chmod(0o755)
    tools = [word for name in ("sort", "head", "cat") for word in on(program(name), "--execute")]
    result = launch(*on(work), *tools, "--", "./script", cwd=work)
    assert (result.stdout, result.stderr) == ("a\nrefused\n", "")


def test_python_with_threads_processes_and_subprocesses(launch: Launch, work: Path) -> None:
    (work / "main.py").write_text(
        "import concurrent.futures, subprocess, ssl, sqlite3, asyncio\n"
        "with concurrent.futures.ThreadPoolExecutor(4) as pool:\n"
        "    print(sum(pool.map(int, '1234')))\n"
        "print(subprocess.run(['echo', 'child'], capture_output=True, text=True).stdout.strip())\n"
        "asyncio.run(asyncio.sleep(0))\n"
        "try: open('../secret')\n"
        "except PermissionError: print('refused')\n"
    )
    rules = [*on(work, "--read"), *on(program("echo"), "--execute")]
    result = launch(*rules, "--", sys.executable, "main.py", cwd=work)
    assert (result.stdout, result.stderr) == ("10\nchild\nrefused\n", "")


def test_pytest_runs_its_tests(launch: Launch, work: Path) -> None:
    (work / "test_it.py").write_text(
        "import pytest\n"
        "def test_refused():\n"
        "    with pytest.raises(PermissionError):\n"
        "        open('../secret')\n"
    )
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:randomly", "-s", "--rootdir", str(work)]
    result = launch(
        *on(work), "--", sys.executable, "-m", "pytest", *options, work / "test_it.py", cwd=work,
        environment={"PYTHONDONTWRITEBYTECODE": "1", "TMPDIR": str(work)},
    )  # fmt: skip
    assert "1 passed" in result.stdout, result.stdout + result.stderr


def test_pip_installs_a_wheel_into_a_folder(launch: Launch, work: Path) -> None:
    parts = {
        "demo.py": "answer = 42\n",
        "demo-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: demo\nVersion: 1.0\n",
        "demo-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nTag: py3-none-any\n",
        "demo-1.0.dist-info/RECORD": "",
    }
    with zipfile.ZipFile(work / "demo-1.0-py3-none-any.whl", "w") as wheel:
        for name, text in parts.items():
            wheel.writestr(name, text)
    pip = ["-I", "-m", "pip", "install", "--no-index", "--no-deps", "--no-cache-dir", "--target"]
    # pip would tell the index which distribution this is, if there were an index.
    rules = [*on(work), *on("/etc/debian_version", "--read")]
    result = launch(
        *rules, "--", sys.executable, *pip, "out", "./demo-1.0-py3-none-any.whl", cwd=work,
        environment={"HOME": str(work), "TMPDIR": str(work)},
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert (work / "out/demo.py").read_text() == parts["demo.py"]
