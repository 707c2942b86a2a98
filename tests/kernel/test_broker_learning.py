"""Learning from real programs: what was seen is enough to run again, and not for more."""

from __future__ import annotations

import http.server
import json
import os
import shutil
import subprocess
import sys
import threading
import zipfile
from typing import TYPE_CHECKING, NamedTuple

import pytest
from host_features import lack

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Again = Callable[..., subprocess.CompletedProcess[str]]

pytestmark = pytest.mark.needs("landlock", "landlock-truncate", "seccomp")

IDENTITY = {
    "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@example.org", "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@example.org",
}  # fmt: skip


class Learned(NamedTuple):
    manifest: Path
    entries: list[dict[str, object]]
    said: str

    @property
    def rules(self) -> set[tuple[object, object]]:
        return {(entry["operation"], entry["target"]) for entry in self.entries}

    def marks(self, target: Path | str) -> list[object]:
        return [each for entry in self.entries if entry["target"] == str(target)
                for each in entry["marks"]]  # type: ignore[attr-defined]  # fmt: skip


def program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        lack(name)
    return found


def environment(home: Path) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    return {**kept, **IDENTITY, "HOME": str(home), "TMPDIR": str(home / "tmp")}


def learn(home: Path, *command: str | Path, cwd: Path) -> Learned:
    manifest = home / "learned.json"
    words = ["learn", "--json", "--manifest-out", str(manifest), "--", *map(str, command)]
    done = subprocess.run(
        [sys.executable, "-I", "-m", "democrai_osguard.cli.main", *words],
        cwd=cwd, env=environment(home), capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    printed = done.stdout[done.stdout.index('{\n  "access"') :]
    return Learned(manifest, json.loads(printed)["entries"], done.stderr)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    (folder / "tmp").mkdir(parents=True)
    (tmp_path / "beside").write_text("nobody asked for this")
    return folder


@pytest.fixture
def again(home: Path) -> Again:
    """Return a function that runs a command under what was learned."""

    def run(learned: Learned, *command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
        # Nobody holds addresses here, which is less than the launcher asks for by default.
        options = ["--best-effort", "--manifest", str(learned.manifest), "--"]
        launcher = [sys.executable, "-I", "-m", "democrai_osguard_launcher", *options]
        done, beside = (
            subprocess.run(
                [*launcher, *map(str, words)],
                cwd=cwd,
                env=environment(home),
                capture_output=True,
                text=True,
                timeout=120,
                check=False,
            )
            for words in (command, ("cat", home.parent / "beside"))
        )
        assert (beside.stdout, beside.returncode) == ("", 1), beside.stderr
        return done

    return run


def fresh(home: Path, name: str, fill: Callable[[Path], object]) -> Path:
    """Make the folder as it was before the first run."""
    folder = home / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    fill(folder)
    return folder


def test_git_clones_and_commits(home: Path, again: Again) -> None:
    program("git")
    source = fresh(home, "source", lambda at: (at / "file").write_text("content"))
    for words in (["init", "-q"], ["add", "file"], ["commit", "-qm", "first"]):
        subprocess.run(["git", *words], cwd=source, env=environment(home), check=True)
    script = "git clone -q source work && cd work && echo x >> file && git commit -qam second"
    work = fresh(home, "at", lambda at: shutil.copytree(source, at / "source"))
    learned = learn(home, "sh", "-c", script, cwd=work)
    work = fresh(home, "at", lambda at: shutil.copytree(source, at / "source"))
    done = again(learned, "sh", "-c", script, cwd=work)
    assert (done.returncode, done.stderr) == (0, "")
    assert (work / "work/.git").is_dir()
    assert ("create", str(work)) in learned.rules


def test_pip_installs_a_wheel(home: Path, again: Again) -> None:
    def wheel(at: Path) -> None:
        (at / "there").mkdir()  # a folder is moved into it, so there must be one to begin with
        info = "thing-1.0.dist-info"
        with zipfile.ZipFile(at / "thing-1.0-py3-none-any.whl", "w") as file:
            file.writestr("thing.py", "x = 1\n")
            file.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: thing\nVersion: 1.0\n")
            file.writestr(
                f"{info}/WHEEL",
                "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
            )
            file.writestr(f"{info}/RECORD", "")

    work = fresh(home, "at", wheel)
    command = (
        sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--no-cache-dir",
        "--disable-pip-version-check", "--target", "there", "thing-1.0-py3-none-any.whl",
    )  # fmt: skip
    learned = learn(home, *command, cwd=work)
    work = fresh(home, "at", wheel)
    done = again(learned, *command, cwd=work)
    assert done.returncode == 0, done.stderr
    assert (work / "there/thing.py").read_text() == "x = 1\n"


@pytest.mark.needs("gcc")
def test_gcc_compiles(home: Path, again: Again) -> None:
    def source(at: Path) -> None:
        (at / "main.c").write_text("#include <stdio.h>\nint main(void) { return 0; }\n")

    work = fresh(home, "at", source)
    learned = learn(home, "gcc", "main.c", "-o", "main", cwd=work)
    work = fresh(home, "at", source)
    done = again(learned, "gcc", "main.c", "-o", "main", cwd=work)
    assert (done.returncode, done.stderr) == (0, "")
    assert (work / "main").stat().st_mode & 0o100
    assert not {target for _, target in learned.rules} & {"/", str(home), str(home.parent)}


def test_sqlite_makes_a_database(home: Path, again: Again) -> None:
    program("sqlite3")
    command = ("sqlite3", "data.db", "create table t(x); insert into t values (1)")
    work = fresh(home, "at", bool)
    learned = learn(home, *command, cwd=work)
    work = fresh(home, "at", bool)
    done = again(learned, *command, cwd=work)
    assert (done.returncode, done.stderr) == (0, "")
    assert (work / "data.db").stat().st_size > 0


@pytest.fixture
def server() -> Iterator[str]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"served")

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.do_GET()

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield f"127.0.0.1:{running.server_port}"
        running.shutdown()
        thread.join()


@pytest.mark.needs("landlock-tcp")
@pytest.mark.parametrize(("options", "operation"), [((), "receive"), (("-d", "x"), "send")])
def test_curl_receives_or_sends(
    options: tuple[str, ...], operation: str, home: Path, server: str, again: Again
) -> None:
    program("curl")
    work = fresh(home, "at", bool)
    command = ("curl", "-sS", "--noproxy", "*", *options, "-o", "page", f"http://{server}/")
    learned = learn(home, *command, cwd=work)
    work = fresh(home, "at", bool)
    done = again(learned, *command, cwd=work)
    assert done.returncode == 0, done.stderr
    assert (work / "page").read_text() == "served"
    assert (operation, f"http://{server}") in learned.rules
    assert not {target for what, target in learned.rules if what == "connect"}
    assert ("create", str(work / "page")) in learned.rules


def test_node_reads_and_writes(home: Path, again: Again) -> None:
    program("node")

    def script(at: Path) -> None:
        (at / "main.js").write_text(
            "const fs = require('fs'); fs.mkdirSync('out'); fs.writeFileSync('out/a', 'x');\n"
            "console.log(fs.readFileSync('out/a', 'utf8'))\n"
        )

    work = fresh(home, "at", script)
    learned = learn(home, "node", "main.js", cwd=work)
    work = fresh(home, "at", script)
    done = again(learned, "node", "main.js", cwd=work)
    assert (done.stdout, done.returncode) == ("x\n", 0)


def test_secrets_and_broad_roots_are_marked(home: Path) -> None:
    (home / ".ssh").mkdir()
    (home / ".ssh/id_rsa").write_text("key")
    work = fresh(home, "at", lambda at: (at / "own").write_text("own"))
    learned = learn(home, "sh", "-c", "cat ../.ssh/id_rsa own; ls /", cwd=work)
    assert learned.marks(home / ".ssh/id_rsa") == ["secret"]
    assert learned.marks("/") == ["broad"]
    assert learned.marks(work / "own") == []
    assert "[SECRET]" in learned.said


def test_a_manifest_that_is_enough_lacks_nothing(home: Path) -> None:
    work = fresh(home, "at", lambda at: (at / "own").write_text("own"))
    learned = learn(home, "cat", "own", cwd=work)
    assert learned.rules == {("read", str(work / "own"))}
    words = ["learn", "--json", "--manifest", str(learned.manifest), "--", "cat", "own"]
    more = subprocess.run(
        [sys.executable, "-I", "-m", "democrai_osguard.cli.main", *words],
        cwd=work, env=environment(home), capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert json.loads(more.stdout[more.stdout.index("{") :])["access"] == []


def test_the_commands_own_code_is_returned(home: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-I", "-m", "democrai_osguard.cli.main", "learn", "--", "false"],
        cwd=home, env=environment(home), capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert json.loads(done.stdout) == {"access": []}
