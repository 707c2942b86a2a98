"""`democrai-launch` from outside: codes, signals, input that must not run anything."""

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
from kernel.conftest import PACKAGES

if TYPE_CHECKING:
    from kernel.conftest import Launch

pytestmark = pytest.mark.needs("landlock", "seccomp")


def rules(*items: tuple[str, str, str]) -> str:
    keys = ("resource_type", "operation", "target")
    return json.dumps([dict(zip(keys, item, strict=True)) for item in items])


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


BAD_INPUT = {
    "no command": (["--read", "/tmp"], None),
    "nothing at all": ([], None),
    "nothing after the dashes": (["--"], None),
    "a word before the dashes": (["true"], None),
    "unknown option": (["--write", "/tmp", "--", "true"], None),
    "an option without its value": (["--read"], None),
    "an option whose value is the dashes": (["--read", "--", "true"], None),
    "an empty path": (["--read=", "--", "true"], None),
    "unknown level": (["--require", "total", "--", "true"], None),
    "unknown subject type": (["--subject", "robot:x", "--", "true"], None),
    "a subject without a name": (["--subject", "tool:", "--", "true"], None),
    "json without explain": (["--json", "--", "true"], None),
    "a host with a space": (["--connect", "a b", "--", "true"], None),
    "a port out of range": (["--connect", "a:70000", "--", "true"], None),
    "a path without a scheme": (["--connect", "a/b", "--", "true"], None),
    "user information": (["--connect", "https://u@a/", "--", "true"], None),
    "not JSON": (["--", "true"], "{"),
    "empty": (["--", "true"], ""),
    "not a list": (["--", "true"], "{}"),
    "not an object": (["--", "true"], "[1]"),
    "a missing field": (["--", "true"], '[{"resource_type":"filesystem","operation":"read"}]'),
    "a key twice": (
        ["--", "true"],
        '[{"resource_type":"filesystem","operation":"read","target":"/a","target":"/"}]',
    ),
    "unknown resource type": (["--", "true"], rules(("url", "receive", "https://a"))),
    "unknown operation": (["--", "true"], rules(("filesystem", "write", "/tmp"))),
    "an operation of another resource": (["--", "true"], rules(("filesystem", "send", "/tmp"))),
    "a relative target": (["--", "true"], rules(("filesystem", "read", "tmp"))),
    "a target that climbs": (["--", "true"], rules(("filesystem", "read", "/tmp/../etc"))),
    "an empty target": (["--", "true"], rules(("filesystem", "read", ""))),
    "a NUL byte": (["--", "true"], rules(("filesystem", "read", "/a\0b"))),
    "a program with a slash": (["--", "true"], rules(("system_dependency", "execute", "a/b"))),
    "deep nesting": (["--", "true"], "[" * 100_000),
}


@pytest.mark.parametrize("name", BAD_INPUT)
def test_bad_input_is_one_line_and_64(launch: Launch, name: str) -> None:
    arguments, access = BAD_INPUT[name]
    result = launch(*arguments, access=access)
    assert result.returncode == 64
    assert result.stdout == ""
    assert result.stderr.startswith("democrai-launch: ")
    assert result.stderr.count("\n") == 1


def test_an_error_names_its_place(launch: Launch) -> None:
    access = rules(("filesystem", "read", "/tmp"), ("filesystem", "write", "/tmp"))
    assert launch("--", "true", access=access).stderr == (
        "democrai-launch: DEMOCRAI_ACCESS[1].operation: 'write' is not an operation of filesystem"
        " (read, create, modify, delete, execute)\n"
    )


def test_ten_thousand_rules_do_not_fit_and_it_says_so(launch: Launch) -> None:
    result = launch(*(f"--read=/tmp/{number}" for number in range(10_000)), "--", "true")
    assert result.returncode == 64
    assert "10000 rules" in result.stderr


def test_a_thousand_rules_work(launch: Launch, tmp_path: Path) -> None:
    access = rules(*(("filesystem", "read", f"/{number}") for number in range(1000)))
    (tmp_path / "file").write_text("seen")
    result = launch("--read", tmp_path, "--", "cat", tmp_path / "file", access=access)
    assert (result.returncode, result.stdout) == (0, "seen")


def test_network_rules_are_refused_because_nothing_holds_addresses(launch: Launch) -> None:
    result = launch("--connect", "192.0.2.1:443", "--", "true")
    assert result.returncode == 125
    assert "address" in result.stderr


@pytest.mark.parametrize("leave", [["--best-effort"], ["--require", "partial"]])
def test_it_runs_with_less_when_told_to_and_says_what_is_not_held(
    launch: Launch, leave: list[str]
) -> None:
    result = launch(*leave, "--connect", "192.0.2.1:443", "--", "true")
    assert result.returncode == 0
    assert "nothing holds the address" in result.stderr


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


def test_explain_runs_nothing_and_its_json_can_be_read(launch: Launch, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    result = launch("--explain", "--json", "--read", tmp_path, "--", "touch", marker)
    document = json.loads(result.stdout)
    assert document["rules"][0]["label"] == "exact"
    assert document["level"] == "full"
    assert not marker.exists()


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


def write_manifest(folder: Path, operation: str) -> Path:
    item = {"resource_type": "filesystem", "operation": operation, "target": "data"}
    (folder / "data").write_text("seen")
    (folder / "manifest.json").write_text(json.dumps({"access": [item], "allowed_imports": []}))
    return folder / "manifest.json"


def test_a_manifest_takes_the_place_of_the_variable(launch: Launch, tmp_path: Path) -> None:
    manifest = write_manifest(tmp_path, "read")
    result = launch("--manifest", manifest, "--", "cat", tmp_path / "data", access="not even JSON")
    assert (result.stdout, result.stderr) == ("seen", "")


def test_a_manifest_that_does_not_parse_is_one_line_and_64(launch: Launch, tmp_path: Path) -> None:
    manifest = write_manifest(tmp_path, "write")
    result = launch("--manifest", manifest, "--", "cat", tmp_path / "data")
    assert (result.returncode, result.stdout) == (64, "")
    assert "access[0].operation: 'write' is not an operation" in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_manifest_that_is_missing_is_64(launch: Launch, tmp_path: Path) -> None:
    assert launch("--manifest", tmp_path / "none.json", "--", "true").returncode == 64


def test_a_path_with_control_characters_is_still_one_line(launch: Launch) -> None:
    result = launch("--read", "/no\nsuch\x1b[31m/path", "--", "true")
    assert result.returncode == 0
    assert result.stderr.count("\n") == 1
    assert "\x1b" not in result.stderr


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
