"""`democrai-launch` from outside: a command runs as it would by itself, and ends as it ends."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from host_features import lack
from kernel.conftest import PACKAGES, rules

if TYPE_CHECKING:
    from kernel.conftest import Launch

pytestmark = pytest.mark.needs("landlock", "seccomp")


def test_a_command_runs_and_its_output_is_its_own(launch: Launch) -> None:
    result = launch("--", "echo", "hello")
    assert (result.returncode, result.stdout, result.stderr) == (0, "hello\n", "")


@pytest.mark.parametrize("code", [0, 1, 42, 64, 255])
def test_the_exit_code_is_the_commands(launch: Launch, code: int) -> None:
    assert launch("--", "sh", "-c", f"exit {code}").returncode == code


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGSEGV, signal.SIGPIPE])
def test_it_dies_by_the_signal_of_the_command(launch: Launch, number: int) -> None:
    assert launch("--", "sh", "-c", f"kill -{int(number)} $$").returncode == -number


def test_a_command_that_does_not_exist_is_127(launch: Launch) -> None:
    result = launch("--", "no-such-command")
    assert (result.returncode, result.stderr) == (
        127,
        "democrai-launch: no-such-command: command not found\n",
    )


def test_a_file_that_is_not_executable_is_126(launch: Launch, tmp_path: Path) -> None:
    file = tmp_path / "data"
    file.write_text("data")
    assert launch("--", file).returncode == 126


def test_a_script_with_a_missing_interpreter_is_127(launch: Launch, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    assert launch("--", script).returncode == 127


def test_a_thousand_rules_work(launch: Launch, tmp_path: Path) -> None:
    access = rules(*(("filesystem", "read", f"/{number}") for number in range(1000)))
    (tmp_path / "file").write_text("seen")
    result = launch("--read", tmp_path, "--", "cat", tmp_path / "file", access=access)
    assert (result.returncode, result.stdout) == (0, "seen")


def test_network_rules_are_held_without_the_helper(launch: Launch) -> None:
    result = launch("--connect", "192.0.2.1:443", "--", "true")
    assert (result.returncode, result.stderr) == (0, "")


def test_a_relative_option_is_relative_to_the_caller(launch: Launch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("seen")
    assert launch("--read", ".", "--", "cat", "file", cwd=tmp_path).stdout == "seen"


def test_policy_comes_from_the_environment_and_from_options(launch: Launch, tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_text("1")
    two.write_text("2")
    access = rules(("filesystem", "read", str(one)))
    assert launch("--", "cat", one, two, access=access).stdout == "1"
    assert launch("--read", two, "--", "cat", one, two, access=access).stdout == "12"


def test_a_missing_path_is_reported_and_opens_nothing(launch: Launch, tmp_path: Path) -> None:
    result = launch("--read", tmp_path / "absent", "--", "ls", tmp_path)
    assert result.returncode == 2
    assert "do not exist and open nothing" in result.stderr


def test_descriptors_are_closed(launch: Launch, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    descriptor = os.open(tmp_path / "secret", os.O_RDONLY)
    read = [sys.executable, "-c", f"import os; print(os.pread({descriptor}, 9, 0))"]
    try:
        free = subprocess.run(read, pass_fds=[descriptor], capture_output=True, check=True)
        result = launch("--", *read, keep=[descriptor])
    finally:
        os.close(descriptor)
    assert free.stdout == b"b'secret'\n"
    assert "Bad file descriptor" in result.stderr


def test_the_launcher_alone_sets_its_variables(launch: Launch) -> None:
    given = {
        "DEMOCRAI_STATE_DIR": "/x", "DEMOCRAI_OS_HELPER_SOCKET": "/y", "DEMOCRAI_ANYTHING": "z",
        "DEMOCRAI_USER_ID": "7",
    }  # fmt: skip
    result = launch("--subject", "tool:search", "--", "env", environment=given)
    assert sorted(line for line in result.stdout.splitlines() if "DEMOCRAI" in line) == [
        "DEMOCRAI_ACCESS=[]",
        "DEMOCRAI_NETWORK_SUBJECT=search",
        "DEMOCRAI_NETWORK_SUBJECT_KIND=tool",
        "DEMOCRAI_USER_ID=7",
    ]


def test_the_child_is_told_its_rules(launch: Launch, tmp_path: Path) -> None:
    result = launch("--read", tmp_path, "--", "sh", "-c", 'echo "$DEMOCRAI_ACCESS"')
    assert json.loads(result.stdout) == [
        {"resource_type": "filesystem", "operation": "read", "target": str(tmp_path)}
    ]


def test_a_python_child_takes_up_what_was_typed_in_another_spelling(launch: Launch) -> None:
    script = (
        "from democrai_osguard import process_guard_from_env\n"
        "with process_guard_from_env() as guard: print(*(each.target for each in guard.access))"
    )
    typed = ["--connect", "127.0.0.1:9", "--receive", "HTTPS://Example.com:443/v1/../v2/"]
    readable = [word for path in sys.path if path for word in ("--read", path)]
    result = launch(*readable, *typed, "--best-effort", "--", sys.executable, "-c", script)
    assert result.stdout.split()[-2:] == ["localhost:9", "https://example.com/v2/"], result.stderr


def test_help_and_version_need_no_command(launch: Launch) -> None:
    assert launch("--help").stdout.startswith("Usage: democrai-launch")
    assert launch("--help").returncode == 0


def test_seventeen_layers_are_refused(launch: Launch) -> None:
    python = os.path.realpath("/proc/self/exe")
    nested = ["--", python, "-m", "democrai_osguard_launcher", "--read", "/", "--execute", "/"]
    result = launch("--read", "/", "--execute", "/", *nested * 16, "--", "true")
    assert result.returncode == 125
    assert "landlock_restrict_self" in result.stderr


def test_a_script_runs_with_its_interpreter(launch: Launch, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("#!/usr/bin/env -S sh -e\necho ran\n")
    script.chmod(0o755)
    assert launch("--", script).stdout == "ran\n"


SYSTEM_PYTHON = "/usr/bin/python3"


@pytest.mark.needs("root")
def test_an_ordinary_user_needs_nothing_more() -> None:
    if not os.path.exists(SYSTEM_PYTHON):
        lack("system-python")  # one that every user can start
    nobody = 65534
    with tempfile.TemporaryDirectory() as name:
        shared = Path(name)
        package = "democrai_osguard_launcher"
        shutil.copytree(PACKAGES / package, shared / package)
        (shared / "work").mkdir()
        os.chown(shared / "work", nobody, nobody)
        for path in (shared, *shared.rglob("*")):
            path.chmod(0o755)
        script = f"echo new > {shared}/work/new; (echo more >> {shared}/work/new) || echo refused"
        command = [SYSTEM_PYTHON, "-B", "-m", "democrai_osguard_launcher"]
        command += ["--create", f"{shared}/work", "--", "sh", "-c", script]
        result = subprocess.run(
            command, user=nobody, group=nobody, extra_groups=[], cwd="/", check=False,
            env={"PYTHONPATH": name, "PATH": os.environ["PATH"]}, capture_output=True, text=True,
        )  # fmt: skip
        assert (result.returncode, result.stdout) == (0, "refused\n")
        assert (shared / "work/new").read_text() == "new\n"
        assert (shared / "work/new").stat().st_uid == nobody
