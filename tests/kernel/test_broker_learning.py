"""Learning from real programs: what was seen is enough to run again, and not for more."""

from __future__ import annotations

import http.server
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import zipfile
from typing import TYPE_CHECKING, NamedTuple

import pytest
from host_features import lack

from democrai_osguard_launcher import kernel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Again = Callable[..., subprocess.CompletedProcess[str]]

pytestmark = pytest.mark.needs("landlock", "landlock-truncate", "seccomp")

OSGUARD = (sys.executable, "-I", "-m", "democrai_osguard.cli.main")
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
        cwd=cwd, env=environment(home), capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    printed = done.stdout[done.stdout.index('{\n  "access"') :]
    return Learned(manifest, json.loads(printed)["entries"], done.stderr)


def osguard_learn(
    home: Path, *command: str | Path, options: tuple[str | Path, ...] = ()
) -> subprocess.CompletedProcess[str]:
    """Learn from a command in its home; return what was said."""
    words = [*OSGUARD, *map(str, ("learn", *options, "--", *command))]
    return subprocess.run(
        words, cwd=home, env=environment(home), capture_output=True, text=True, timeout=600,
        check=False,
    )  # fmt: skip


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
                timeout=600,
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


def test_each_rule_says_how_often_for_what_and_for_whom(home: Path) -> None:
    work = fresh(home, "at", lambda at: [(at / name).write_text(name) for name in "abcde"])
    learned = learn(home, "cat", *"abcdeabc", cwd=work)
    (entry,) = [each for each in learned.entries if each["target"] == str(work)]
    assert (entry["operation"], entry["count"]) == ("read", 8)
    assert entry["examples"] == [str(work / name) for name in "abc"]
    assert [os.path.basename(str(each)) for each in entry["programs"]] == ["cat"]  # type: ignore[attr-defined]
    assert f"filesystem read {work}: 8 time(s), such as {work / 'a'}" in learned.said


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


MOVES = {
    "into a folder that the run made": "mkdir made && mv file made/",
    "into a folder in a folder": "mkdir -p a/b && mv file a/b/ && mv a/b/file a/again",
    "out of a folder that the run made": "mkdir made && echo x > made/new && mv made/new .",
    "a whole folder": "mkdir made && echo x > made/new && mv made held/",
    "to where more is allowed": "mv file held/ && cat held/* > all && mv all held/ && rm held/file",
    "a second name": "ln file held/second && echo more >> held/second",
    "with slashes": "mkdir made/ && mv held/ moved/ && rmdir moved/ && echo x > file",
    "away with all of it": "mkdir held/a && echo x > held/a/b && rm -r held/ && echo x > file",
    "through a link to nothing": "ln -s new link && echo x > link",
    "through a link that was there": "echo x > dangling && touch -h linked",
    "a file that is only locked": "flock lock true && echo x > out",
}


@pytest.mark.parametrize("case", MOVES)
def test_a_shell_moves_things_about(case: str, home: Path, again: Again) -> None:
    def fill(at: Path) -> None:
        (at / "held").mkdir()
        (at / "file").write_text("content\n")
        (at / "dangling").symlink_to("made")
        (at / "linked").symlink_to("file")

    def left(at: Path) -> dict[str, str]:
        return {str(each.relative_to(at)): each.read_text() for each in at.rglob("*") if
                each.is_file()}  # fmt: skip

    command = ("sh", "-ec", MOVES[case])
    learned = learn(home, *command, cwd=fresh(home, "at", fill))
    expected = left(home / "at")
    assert expected not in ({}, {"file": "content\n"})
    work = fresh(home, "at", fill)
    done = again(learned, *command, cwd=work)
    assert (done.returncode, done.stderr) == (0, "")
    assert left(work) == expected


TEMPORARY = {
    "with a name": "with tempfile.NamedTemporaryFile('w+', dir='.') as file: use(file)",
    "without a name": "with tempfile.TemporaryFile('w+', dir='.') as file: use(file)",
    "in a folder": """with tempfile.TemporaryDirectory(dir='.') as at:
    with open(at + '/x', 'w+') as file: use(file)""",
}


@pytest.mark.parametrize("case", TEMPORARY)
def test_a_temporary_file_has_another_name_the_next_time(
    case: str, home: Path, again: Again
) -> None:
    use = "import tempfile\ndef use(file): print(file.write('x'))\n"
    command = (sys.executable, "-I", "-c", use + TEMPORARY[case])
    work = fresh(home, "at", lambda at: (at / "file").write_text("content"))
    learned = learn(home, *command, cwd=work)
    done = again(learned, *command, cwd=work)
    assert (done.stdout, done.stderr) == ("1\n", "")
    assert os.listdir(work) == ["file"]


def test_a_rule_stands_where_there_was_a_folder_before(home: Path) -> None:
    work = fresh(home, "at", lambda at: (at / "file").write_text("content"))
    learned = learn(home, "sh", "-ec", "mkdir made && mv file made/", cwd=work)
    assert {("create", str(work)), ("delete", str(work))} <= learned.rules
    assert str(work / "made") not in {target for _, target in learned.rules}


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
        cwd=work, env=environment(home), capture_output=True, text=True, timeout=600, check=True,
    )  # fmt: skip
    assert json.loads(more.stdout[more.stdout.index("{") :])["access"] == []


def test_the_commands_own_code_is_returned(home: Path) -> None:
    done = osguard_learn(home, "false")
    assert done.returncode == 1
    assert json.loads(done.stdout) == {"access": []}


def test_an_option_that_there_is_not_is_no_command(home: Path) -> None:
    done = osguard_learn(home, "touch", "ran", options=("--deny-frist",))
    assert (done.returncode, done.stdout, (home / "ran").exists()) == (64, "", False)
    assert done.stderr.startswith("democrai-osguard: No such option")
    assert done.stderr.count("\n") == 1
    assert osguard_learn(home, "sh", "-c", "exit 3").returncode == 3


def test_with_json_standard_output_is_json_and_nothing_of_the_commands(home: Path) -> None:
    done = osguard_learn(home, "sh", "-c", "echo '{'; echo more >&2", options=("--json",))
    assert done.returncode == 0
    assert json.loads(done.stdout)["access"] == []
    assert done.stderr.startswith("{\nmore\n")


def test_without_json_the_commands_output_stays_where_it_was(home: Path) -> None:
    done = osguard_learn(home, "echo", "own")
    assert done.stdout.startswith("own\n{")


def test_a_signal_is_the_commands_own_code(home: Path) -> None:
    done = osguard_learn(home, "sh", "-c", "kill -TERM $$")
    assert done.returncode == 128 + signal.SIGTERM
    assert json.loads(done.stdout) == {"access": []}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("handles", [True, False])
def test_a_signal_goes_to_the_command_and_what_was_seen_is_printed(
    number: signal.Signals, home: Path, *, handles: bool
) -> None:
    work = fresh(home, "at", lambda at: (at / "own").write_text("own"))
    trap = f"trap 'cat own; exit 3' {number.name[3:]}" if handles else "cat own"
    script = f"{trap}; echo $$ > pid; while sleep 0.1; do :; done"
    words = [*OSGUARD, "learn", "--", "sh", "-c", script]
    with subprocess.Popen(
        words, cwd=work, env=environment(home), text=True, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        until = time.monotonic() + 60
        while not (work / "pid").exists() or not (work / "pid").read_text().strip():
            assert time.monotonic() < until
            time.sleep(0.02)
        process.send_signal(number)
        printed, said = process.communicate(timeout=60)
    assert process.returncode == (3 if handles else 128 + number), said
    access = json.loads(printed[printed.index("{") :])["access"]
    assert str(work / "own") in {rule["target"] for rule in access}
    assert not os.path.exists(f"/proc/{(work / 'pid').read_text().strip()}")
    assert os.listdir(home / "tmp") == []


@pytest.mark.parametrize("place", ["no/such/learnt", "file/learnt", "/proc/self/learnt"])
def test_a_place_that_cannot_be_written_is_said_before_anything_runs(
    place: str, home: Path
) -> None:
    (home / "file").touch()
    done = osguard_learn(home, "touch", "ran", options=("--manifest-out", place))
    assert (done.returncode, done.stdout, (home / "ran").exists()) == (64, "", False)
    assert (done.stderr.count("\n"), "--manifest-out" in done.stderr) == (1, True)


def test_a_place_that_goes_away_costs_only_the_file(home: Path) -> None:
    (home / "out").mkdir()
    done = osguard_learn(home, "rmdir", "out", options=("--manifest-out", "out/learnt"))
    assert done.returncode == 64
    assert "the manifest is printed instead" in done.stderr
    assert "Traceback" not in done.stderr
    assert [rule["operation"] for rule in json.loads(done.stdout)["access"]] == ["delete"]


HOMELESS = {
    "list": (("democrai_osguard.cli.main", "requests", "list"), 64),
    "learn": (("democrai_osguard.cli.main", "learn", "--deny-first", "--", "touch", "ran"), 64),
    "supervised": (
        ("democrai_osguard_launcher", "--supervised", "--subject", "module:m", "--", "touch",
         "ran"),
        125,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", HOMELESS)
def test_an_account_without_a_home_is_told_so_in_one_line(case: str, home: Path) -> None:
    words, code = HOMELESS[case]
    kept = {name: value for name, value in environment(home).items() if name != "HOME"}
    done = subprocess.run(
        [sys.executable, "-I", "-m", *words], cwd=home, env={**kept, "HOME": "/proc/nobody"},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, (home / "ran").exists()) == (code, "", False)
    assert (done.stderr.count("\n"), "cannot be made" in done.stderr) == (1, True), done.stderr


SOCKETS = {
    "listening": ("own = socket.socket(); own.bind(('127.0.0.1', 0))", "to listen on a network"),
    "abstract": (
        ("a, b = (socket.socket(socket.AF_UNIX) for _ in 'ab'); a.bind(b'\\0' + name)\n"
        "a.listen(); b.connect(b'\\0' + name)"), "an abstract unix socket",
    ),
    "its own": (
        ("a, b = (socket.socket(socket.AF_UNIX) for _ in 'ab'); a.bind('own'); a.listen()\n"
        "b.connect('own')"), "a unix socket that is made in the run itself",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", SOCKETS)
def test_what_no_rule_can_say_is_said(case: str, home: Path) -> None:
    if case != "listening" and kernel.landlock_abi() >= 9:
        pytest.skip("this kernel tells unix sockets apart")
    script, words = SOCKETS[case]
    start = "import os, socket\nname = b'learnt-%d' % os.getpid()\n"
    done = osguard_learn(home, sys.executable, "-I", "-c", start + script)
    assert words in done.stderr
    access = json.loads(done.stdout[done.stdout.index("{") :])["access"]
    assert "modify" not in {rule["operation"] for rule in access}
    assert (done.returncode == 0) is (case != "listening")


def test_a_file_that_is_open_by_number_is_no_rule(home: Path, again: Again) -> None:
    script = (
        "import os\nheld = os.open('file', os.O_RDWR)\n"
        "try:\n    os.link(f'/proc/self/fd/{held}', 'other')\nexcept OSError as error:\n"
        "    print(error.errno)\n"
        "for name in 'abcd':\n    open(name, 'a').write('x')\n"
    )

    def fill(at: Path) -> None:
        for name in ("file", *"abcd"):
            (at / name).write_text("x")

    work = fresh(home, "at", fill)
    learned = learn(home, sys.executable, "-I", "-c", script, cwd=work)
    assert not {target for _, target in learned.rules if str(target).startswith("/proc/")}
    work = fresh(home, "at", fill)
    done = again(learned, sys.executable, "-I", "-c", script, cwd=work)
    assert (done.returncode, done.stderr) == (0, "")
