"""What else the command inherits: descriptors, environment, limits, session."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from host_features import lack
from kernel.conftest import PACKAGES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kernel.conftest import Launch

pytestmark = pytest.mark.needs("landlock", "seccomp")
SYSTEM_PYTHON = "/usr/bin/python3"
PACKAGE = "democrai_osguard_launcher"
PATIENCE = 60.0  # seconds for what should happen at once
LONELY = 61_237  # a user of whom there is nothing else


def test_a_descriptor_is_kept_when_asked_for(launch: Launch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("content")
    (tmp_path / "other").write_text("other")
    kept, closed = (os.open(tmp_path / name, os.O_RDONLY) for name in ("file", "other"))
    script = (
        f"import os; print(os.read({kept}, 99)); print(os.listdir('/proc/self/fd'))\n"
        f"os.fstat({closed})"
    )
    try:
        result = launch(
            "--keep-fd", str(kept), "--", sys.executable, "-c", script, keep=[kept, closed]
        )
    finally:
        os.close(kept)
        os.close(closed)
    content, descriptors = result.stdout.splitlines()
    assert content == "b'content'"
    assert {"0", "1", "2", str(kept)} <= set(json.loads(descriptors.replace("'", '"')))
    assert "Bad file descriptor" in result.stderr


@pytest.mark.parametrize("number", ["999", "x", "-1"])
def test_a_descriptor_that_is_not_open_cannot_be_kept(launch: Launch, number: str) -> None:
    assert launch("--keep-fd", number, "--", "true").returncode == 64


SECRETS = {
    "AWS_SECRET_ACCESS_KEY": "s",
    "GITHUB_TOKEN": "s",
    "DB_PASSWORD": "s",
    "SSH_AUTH_SOCK": "s",
    "DATABASE_URL": "s",
    "OPENAI_API_KEY": "s",
}
PLAIN = {"GIT_AUTHOR_NAME": "p", "KEYBOARD": "p", "LANG": "C", "MONKEY_PATCH": "p", "OLDPWD": "/"}


def names(result: subprocess.CompletedProcess[str]) -> set[str]:
    return {line.partition("=")[0] for line in result.stdout.splitlines()}


def test_what_looks_like_a_secret_is_not_passed_on(launch: Launch) -> None:
    found = names(launch("--", "env", environment=SECRETS | PLAIN))
    assert not found & SECRETS.keys()
    assert found >= PLAIN.keys()


def test_a_secret_is_kept_when_asked_for(launch: Launch) -> None:
    one = launch("--keep-env", "GITHUB_TOKEN", "--", "env", environment=SECRETS)
    assert names(one) & SECRETS.keys() == {"GITHUB_TOKEN"}
    every = launch("--keep-env", "*", "--", "env", environment=SECRETS)
    assert names(every) >= SECRETS.keys()


@pytest.mark.parametrize(
    ("limit", "flag", "shown"),
    [("files=32", "-n", "32"), ("nproc=64", "-u", "64"), ("memory=512m", "-v", "524288")],
)
def test_a_limit_is_lowered_and_cannot_be_raised(
    launch: Launch, limit: str, flag: str, shown: str
) -> None:
    shell = ["--", "bash", "-c", f"ulimit {flag}; ulimit -H {flag}"]
    assert launch("--limit", limit, *shell).stdout.split() == [shown, shown]


@pytest.mark.parametrize(
    "limit", ["files", "files=", "files=x", "nonsense=1", "files=1t", "cpu=-1"]
)
def test_a_limit_that_is_none_is_a_usage_error(launch: Launch, limit: str) -> None:
    assert launch("--limit", limit, "--", "true").returncode == 64


@pytest.mark.needs("root")
def test_a_limit_that_root_is_not_held_to_is_said(launch: Launch, tmp_path: Path) -> None:
    line = "--limit nproc: without effect, because the kernel does not count root's processes"
    limit, receipt = ("--limit", "nproc=1"), tmp_path / "receipt"
    result = launch(*limit, "--receipt", receipt, "--", "sh", "-c", "(:) && echo forked")
    assert (result.stdout, result.stderr) == ("forked\n", f"democrai-launch: {line}\n")
    assert line in json.loads(receipt.read_text())["plan"]["notes"]
    assert f"note: {line}\n" in launch(*limit, "--explain").stdout
    assert launch("--limit", "files=64", "--", "true").stderr == ""


# A limit, what a shell does that goes beyond it, and how that ends under the limit.
EFFECTS = {
    "cpu": ("cpu=1", "while [ $SECONDS -lt 60 ]; do :; done; echo done", -signal.SIGKILL),
    "fsize": ("fsize=1k", "printf '%2000s' >&{file}; echo done", -signal.SIGXFSZ),
    "stack": (
        "stack=128k",
        "f() {{ [ $1 = 0 ] || f $(($1 - 1)); }}; f 3000; echo done",
        -signal.SIGSEGV,
    ),
    "files": ("files=8", "exec 9< /dev/null || exit 7; echo done", 7),
}


@pytest.mark.parametrize("broker", [False, True], ids=["alone", "supervised"])
@pytest.mark.parametrize("name", EFFECTS)
def test_a_limit_has_its_effect(launch: Launch, tmp_path: Path, name: str, broker: bool) -> None:
    limit, script, end = EFFECTS[name]
    file = os.open(tmp_path / "file", os.O_WRONLY | os.O_CREAT)
    options = ["--keep-fd", str(file), *(["--modify", str(tmp_path)] if broker else [])]
    shell = ["--", "bash", "-c", script.format(file=file)]
    try:
        held = launch("--limit", limit, *options, *shell, keep=[file])
        size = os.fstat(file).st_size
        if name != "cpu":  # without a limit it would take its minute
            free = launch(*options, *shell, keep=[file])
            assert (free.returncode, free.stdout) == (0, "done\n")
    finally:
        os.close(file)
    assert (held.returncode, held.stdout) == (end, "")
    assert size == (1024 if name == "fsize" else 0)


@contextlib.contextmanager
def a_launcher_for_everybody() -> Iterator[tuple[list[str], dict[str, str]]]:
    """Give the words and the variables of a launcher that every user can start."""
    if not os.path.exists(SYSTEM_PYTHON):
        lack("system-python")
    with tempfile.TemporaryDirectory() as name:
        shared = Path(name)
        shutil.copytree(PACKAGES / PACKAGE, shared / PACKAGE)
        for path in (shared, *shared.rglob("*")):
            path.chmod(0o755)
        environment = {"PYTHONPATH": name, "PATH": os.environ["PATH"]}
        yield [SYSTEM_PYTHON, "-B", "-m", PACKAGE], environment


@pytest.mark.needs("root")
@pytest.mark.parametrize(("limit", "outcome"), [("nproc=1", "refused\n"), ("nproc=8", "forked\n")])
def test_an_ordinary_user_is_held_to_a_number_of_processes(limit: str, outcome: str) -> None:
    """As a user that has no other processes: the kernel counts all that a user has."""
    script = "(echo forked) 2> /dev/null"
    words = ["--limit", limit, "--", "sh", "-c", script]
    with a_launcher_for_everybody() as (command, environment):
        result = subprocess.run(
            [*command, *words], user=LONELY, group=LONELY, extra_groups=[], cwd="/", check=False,
            env=environment, capture_output=True, text=True,
        )  # fmt: skip
    said = result.stdout if result.returncode == 0 else "refused\n"
    assert said == outcome
    assert "without effect" not in result.stderr


@pytest.mark.parametrize("broker", [False, True], ids=["alone", "supervised"])
def test_a_pipe_that_nobody_reads_ends_who_writes(launch: Launch, broker: bool) -> None:
    """Python ignores SIGPIPE; a command that found it ignored would go on and complain."""
    options = ["--modify", "/tmp"] if broker else []
    reader, writer = os.pipe()
    os.close(reader)
    try:
        shell = ["bash", "-c", f"echo into >&{writer}; echo complained"]
        result = launch(*options, "--keep-fd", str(writer), "--", *shell, keep=[writer])
    finally:
        os.close(writer)
    assert (result.returncode, result.stdout, result.stderr) == (-signal.SIGPIPE, "", "")


def test_there_are_no_core_dumps_and_files_are_private(launch: Launch) -> None:
    result = launch("--", "bash", "-c", "ulimit -c; ulimit -Hc; umask")
    assert result.stdout.split() == ["0", "0", "0077"]


def test_no_privileges_are_left_to_gain(launch: Launch) -> None:
    status = launch("--", "cat", "/proc/self/status").stdout
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    assert fields["NoNewPrivs"] == "1"
    assert fields["Seccomp"] == "2"
    assert int(fields["CapBnd"], 16) & ~0x4FF == 0 or os.geteuid() != 0
    assert int(fields["CapEff"], 16) & ~0x4FF == 0
    # 32 and 33 are libc's own, and stay as whoever started the tests has left them.
    assert int(fields["SigIgn"], 16) & ~(0b11 << 31) == 0


# Root that has become somebody else for a while: who asks is nobody, and may be root again.
BECOME = "import os, sys; os.setresuid(0, {user}, {user}); os.execv(sys.argv[1], sys.argv[1:])"
BE_ROOT_AGAIN = "import os; os.setresuid(0, 0, 0); print(os.geteuid())"


@pytest.mark.needs("root")
def test_root_that_acts_as_somebody_else_is_refused() -> None:
    """Exec would give a command all of root's capabilities, and nobody else can take them away."""
    become = [SYSTEM_PYTHON, "-c", BECOME.format(user=LONELY)]
    again = [SYSTEM_PYTHON, "-c", BE_ROOT_AGAIN]
    with a_launcher_for_everybody() as (command, environment):
        free, confined = (
            subprocess.run(
                words, cwd="/", check=False, env=environment, capture_output=True, text=True
            )
            for words in ([*become, *again], [*become, *command, "--", *again])
        )
    assert free.stdout == "0\n"
    assert (confined.returncode, confined.stdout) == (125, "")
    assert "could become root again" in confined.stderr


def on_a_terminal(command: list[str], environment: dict[str, str]) -> str:
    """Run the command with a terminal of its own and return what it showed."""
    child, terminal = pty.fork()
    if child == 0:
        os.execve(command[0], command, environment)  # noqa: S606
    shown = b""
    while True:
        try:
            piece = os.read(terminal, 4096)
        except OSError:  # the other side is closed
            break
        if not piece:
            break
        shown += piece
    os.close(terminal)
    os.waitpid(child, 0)
    return shown.decode()


def test_a_terminal_is_not_the_commands_to_control() -> None:
    environment = dict(os.environ)
    script = "if (: < /dev/tty); then echo controls; fi; echo done"
    shell = ["/bin/sh", "-c", script]
    launcher = [sys.executable, "-m", "democrai_osguard_launcher", "--"]
    free, confined = (on_a_terminal(command, environment) for command in (shell, launcher + shell))
    assert "controls" in free
    assert "controls" not in confined
    assert "done" in confined


def start(*arguments: str | Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "democrai_osguard_launcher", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@contextlib.contextmanager
def running(*arguments: str | Path) -> Iterator[subprocess.Popen[str]]:
    """Start the launcher, and end it whatever comes."""
    with start(*arguments) as process:
        try:
            yield process
        finally:
            process.kill()  # and what it supervises goes with it


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_supervised_command_gets_signals_and_its_end_is_passed_on(
    tmp_path: Path, number: signal.Signals
) -> None:
    with start(
        "--modify", tmp_path, "--", "sh", "-c", "echo ready; while :; do :; done"
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        assert process.wait(60) == -number


def test_a_supervised_command_can_answer_a_signal(tmp_path: Path) -> None:
    script = "trap 'echo caught; exit 7' TERM; echo ready; while :; do :; done"
    with start("--modify", tmp_path, "--", "sh", "-c", script) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.terminate()
        assert process.wait(60) == 7
        assert process.stdout.read() == "caught\n"


HEARD = [signal.SIGWINCH, signal.SIGCONT, signal.SIGUSR1, signal.SIGALRM]


@pytest.mark.parametrize("number", HEARD, ids=lambda number: number.name)
def test_a_supervised_command_hears_of_its_terminal(tmp_path: Path, number: signal.Signals) -> None:
    name = number.name.removeprefix("SIG")
    script = f"trap 'echo heard; exit 7' {name}; echo ready; while :; do :; done"
    with running("--modify", tmp_path, "--", "sh", "-c", script) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        assert process.wait(PATIENCE) == 7
        assert process.stdout.read() == "heard\n"


def state_of(process: int) -> str:
    """Return the letter of the kernel for what the process does."""
    with open(f"/proc/{process}/stat", encoding="utf-8") as file:
        return file.read().rpartition(") ")[2][0]


def test_a_stop_from_the_terminal_stops_both_and_both_go_on(tmp_path: Path) -> None:
    script = "trap 'echo continued; exit 7' CONT; echo $$; while :; do :; done"
    with running("--modify", tmp_path, "--", "sh", "-c", script) as process:
        assert process.stdout is not None
        command = int(process.stdout.readline())
        assert command != process.pid
        assert state_of(command) in "RS"
        process.send_signal(signal.SIGTSTP)
        end = time.monotonic() + PATIENCE
        while not state_of(process.pid) == state_of(command) == "T":
            assert time.monotonic() < end, "it does not stop"
            time.sleep(0.02)
        process.send_signal(signal.SIGCONT)
        assert process.wait(PATIENCE) == 7
        assert process.stdout.read() == "continued\n"


def test_without_its_supervisor_a_command_ends(tmp_path: Path) -> None:
    with start("--modify", tmp_path, "--", "sh", "-c", "echo $$; while :; do :; done") as process:
        assert process.stdout is not None
        command = int(process.stdout.readline())
        process.kill()
        process.wait(60)
        for _ in range(1500):
            if not os.path.exists(f"/proc/{command}"):
                return
            time.sleep(0.02)
    pytest.fail("the command outlived its supervisor")
