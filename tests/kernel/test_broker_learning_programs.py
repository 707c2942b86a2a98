"""Learning from real programs: what was seen is enough to run again, and not for more."""

from __future__ import annotations

import http.server
import shutil
import socket
import subprocess
import sys
import threading
import zipfile
from typing import TYPE_CHECKING

import pytest
from kernel.learned import (
    environment,
    fresh,
    learn,
    program,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kernel.learned import Again

pytestmark = pytest.mark.needs("landlock", "landlock-truncate", "seccomp")


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


@pytest.mark.needs("landlock-tcp")
def test_a_connection_that_speaks_something_else_is_connect(home: Path, again: Again) -> None:
    script = (
        "import socket, sys\n"
        "with socket.create_connection(('127.0.0.1', int(sys.argv[1]))) as own:\n"
        "    own.sendall(b'EHLO me')\n"
    )
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        work = fresh(home, "at", bool)
        command = (sys.executable, "-I", "-c", script, str(port))
        learned = learn(home, *command, cwd=work)
        done = again(learned, *command, cwd=work)
    assert (done.returncode, done.stderr.count("Traceback")) == (0, 0)
    network = [each for each in learned.entries if each["resource_type"] == "network"]
    assert [(each["operation"], each["target"]) for each in network] == [
        ("connect", f"127.0.0.1:{port}")
    ]


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


def test_git_clones_from_elsewhere_with_links(home: Path, again: Again) -> None:
    program("git")
    source = fresh(home, "source", lambda at: (at / "file").write_text("content"))
    for words in (["init", "-q"], ["add", "file"], ["commit", "-qm", "first"]):
        subprocess.run(["git", *words], cwd=source, env=environment(home), check=True)
    command = ("git", "clone", "-q", str(source), "work")
    learned = learn(home, *command, cwd=fresh(home, "at", bool))
    work = fresh(home, "at", bool)
    done = again(learned, *command, cwd=work)
    assert (done.returncode, done.stderr) == (0, "")
    assert (work / "work/file").read_text() == "content"
