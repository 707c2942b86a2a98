"""What else the command inherits: descriptors, environment, limits, session."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from kernel.conftest import Launch

pytestmark = pytest.mark.needs("landlock", "seccomp")


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
