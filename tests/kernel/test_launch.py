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

from democrai_osguard_launcher import program

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
    "a phase of no manifest": (["--phase", "install", "--", "true"], None),
    "patience without a question": (["--ask-timeout", "3", "--", "true"], None),
    "an answerer without a question": (["--ask-fd", "1", "--", "true"], None),
    "two manifests": (["--manifest", "/a", "--manifest=/b", "--", "true"], None),
    "two subjects": (["--subject", "tool:a", "--subject", "tool:b", "--", "true"], None),
    "two receipts": (["--receipt", "/a", "--receipt", "/b", "--", "true"], None),
    "half of a character": (["--", "true"], rules(("filesystem", "read", "/tmp/\ud800"))),
    "a limit beyond all limits": (
        ["--limit", "memory=99999999999999999999999", "--", "true"],
        None,
    ),
    "a limit that is just too large": (["--limit", f"memory={1 << 63}", "--", "true"], None),
    "a limit that its unit makes too large": (
        ["--limit", "memory=9999999999g", "--", "true"],
        None,
    ),
    "a limit of many digits": (["--limit", f"files={'9' * 5000}", "--", "true"], None),
    "a port of many digits": (["--connect", f"a:{'9' * 5000}", "--", "true"], None),
    "a descriptor of many digits": (["--keep-fd", "9" * 5000, "--", "true"], None),
    "a time of many digits": (
        ["--supervised", "--subject=tool:x", "--ask-timeout", "9" * 5000, "--", "true"],
        None,
    ),
}


@pytest.mark.parametrize("name", BAD_INPUT)
def test_bad_input_is_one_line_and_64(launch: Launch, name: str) -> None:
    arguments, access = BAD_INPUT[name]
    result = launch(*arguments, access=access)
    assert result.returncode == 64
    assert result.stdout == ""
    assert result.stderr.startswith("democrai-launch: ")
    assert result.stderr.count("\n") == 1
    assert "Python" not in result.stderr
    assert "digits" not in result.stderr  # of a number that was too long for an interpreter


def test_an_error_names_its_place(launch: Launch) -> None:
    access = rules(("filesystem", "read", "/tmp"), ("filesystem", "write", "/tmp"))
    assert launch("--", "true", access=access).stderr == (
        "democrai-launch: DEMOCRAI_ACCESS[1].operation: 'write' is not an operation of filesystem"
        " (read, create, modify, delete, execute)\n"
    )


def test_a_target_that_cannot_be_a_name_names_its_place(launch: Launch) -> None:
    access = rules(("filesystem", "read", "/tmp/\ud800"))
    assert launch("--", "true", access=access).stderr == (
        "democrai-launch: DEMOCRAI_ACCESS[0].target: '/tmp/\\ud800' holds a character that no"
        " file name can hold\n"
    )


PASSWORDS = {
    "in an option": (["--connect", "http://user:hunter2@host/", "--", "true"], None),
    "without a scheme": (["--send", "user:hunter2@host", "--", "true"], None),
    "with a slash": (["--receive=http://user:hun/ter2@host/", "--", "true"], None),
    "as a value of no option": (["--conect=http://user:hunter2@host/", "--", "true"], None),
    "in the variable": (["--", "true"], rules(("network", "connect", "http://user:hunter2@host/"))),
}


@pytest.mark.parametrize("where", PASSWORDS)
def test_a_password_in_a_target_is_not_said(launch: Launch, where: str) -> None:
    arguments, access = PASSWORDS[where]
    result = launch(*arguments, access=access)
    assert (result.returncode, result.stderr.count("\n")) == (64, 1)
    assert "ter2" not in result.stderr
    assert "user" not in result.stderr
    assert "host" in result.stderr or "--conect: " in result.stderr


def test_a_password_in_a_manifest_is_not_said(launch: Launch, tmp_path: Path) -> None:
    target = "http://user:hunter2@host/"
    item = {"resource_type": "network", "operation": "send", "target": target}
    (tmp_path / "manifest.json").write_text(json.dumps({"access": [item]}))
    result = launch("--manifest", tmp_path / "manifest.json", "--", "true")
    assert result.returncode == 64
    assert "access[0].target: invalid_target: 'http://***@host/': contains user" in result.stderr


def test_no_name_is_named(launch: Launch) -> None:
    result = launch("--", "")
    assert (result.returncode, result.stderr) == (127, "democrai-launch: '': command not found\n")


IN_A_FOLDER_THAT_IS_GONE = {
    "a relative rule": (
        ["--read", "here", "--", "true"], 64, "--read: 'here' is relative to a folder that is gone",
    ),
    "a relative command": (
        ["--", "./here"], 127,
        "./here: command not found: it is relative to a folder that is gone",
    ),
    "a relative manifest": (["--manifest", "here.json", "--", "true"], 64, None),
    "a relative receipt": (
        ["--receipt", "here", "--", "true"], 64, "--receipt: here: No such file or directory",
    ),
}  # fmt: skip


def gone(folder: Path, *arguments: str, path: str = "/usr/bin:/bin") -> tuple[int, str, str]:
    """Run the launcher in a folder that is removed meanwhile."""
    words = ["sh", "-c", 'rmdir "$PWD" && exec "$@"', "sh", sys.executable, "-m"]
    words += ["democrai_osguard_launcher", *arguments]
    (folder / "gone").mkdir()
    environment = {"PYTHONPATH": str(PACKAGES), "PATH": path}
    done = subprocess.run(
        words, cwd=folder / "gone", env=environment, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("name", IN_A_FOLDER_THAT_IS_GONE)
def test_a_folder_that_is_gone_is_said_in_one_line(tmp_path: Path, name: str) -> None:
    arguments, code, line = IN_A_FOLDER_THAT_IS_GONE[name]
    found = gone(tmp_path, *arguments)
    assert found[:2] == (code, "")
    assert found[2].count("\n") == 1
    assert line is None or found[2] == f"democrai-launch: {line}\n"


def test_a_folder_that_is_gone_keeps_no_command_from_running(tmp_path: Path) -> None:
    found = gone(tmp_path, "--read", "/tmp", "--", "echo", "ran", path="relative:/usr/bin:/bin")
    assert found == (0, "ran\n", "")


def test_ten_thousand_rules_do_not_fit_and_it_says_so(launch: Launch) -> None:
    many = [f"--read=/tmp/{number}" for number in range(10_000)]
    for options in ([], ["--explain"], ["--explain", "--json"]):
        result = launch(*options, *many, "--", "true")
        assert (result.returncode, result.stdout) == (64, "")
        assert "10000 rules" in result.stderr


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


def test_an_unknown_kind_in_the_environment_is_64_as_on_the_command_line(launch: Launch) -> None:
    given = {"DEMOCRAI_NETWORK_SUBJECT": "x", "DEMOCRAI_NETWORK_SUBJECT_KIND": "bogus"}
    result = launch("--", "true", environment=given)
    assert (result.returncode, result.stdout) == (64, "")
    assert result.stderr == (
        "democrai-launch: DEMOCRAI_NETWORK_SUBJECT_KIND: 'bogus' is not a subject type"
        " (module, engine, extractor, agent, tool, pipeline, core, mcp, task)\n"
    )
    # The option takes its place, and then nobody is told of the other.
    assert launch("--subject", "tool:x", "--", "true", environment=given).returncode == 0


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


def test_explain_runs_nothing_and_its_json_can_be_read(launch: Launch, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    result = launch("--explain", "--json", "--read", tmp_path, "--", "touch", marker)
    document = json.loads(result.stdout)
    assert document["rules"][0]["label"] == "exact"
    assert document["level"] == "full"
    assert not marker.exists()


def test_explain_says_what_the_command_would_inherit(launch: Launch) -> None:
    kept, closed = os.open("/dev/null", os.O_RDONLY), os.open("/dev/null", os.O_RDONLY)
    options = ["--keep-fd", str(kept), "--keep-env", "MY_TOKEN", "--limit", "files=64", "--explain"]
    secrets = {"MY_TOKEN": "value-1", "OTHER_TOKEN": "value-2", "DEMOCRAI_STATE_DIR": "/x"}
    try:
        shown = launch(*options, "--json", keep=[kept, closed], environment=secrets)
        text = launch(*options, keep=[kept, closed], environment=secrets).stdout
    finally:
        os.close(kept)
        os.close(closed)
    document = json.loads(shown.stdout)
    assert document["descriptors"]["kept"] == [0, 1, 2, kept]
    assert closed in document["descriptors"]["closed"]
    environment = document["environment"]
    assert {"PATH", "MY_TOKEN"} <= set(environment["passed"])
    assert environment["asked_for"] == ["MY_TOKEN"]
    assert {"OTHER_TOKEN", "DEMOCRAI_STATE_DIR"} <= set(environment["withheld"])
    assert environment["set"] == ["DEMOCRAI_ACCESS"]
    assert document["limits"] == {"files": 64}
    assert "value-" not in shown.stdout + text
    assert f"descriptors: 0, 1, 2, {kept} kept; all others closed, such as {closed}" in text
    assert "environment, kept as asked: MY_TOKEN\n" in text
    assert "OTHER_TOKEN" in text
    assert "limits: files=64\n" in text


def test_what_is_explained_is_what_the_command_finds(launch: Launch) -> None:
    secrets = {"MY_TOKEN": "value-1", "DEMOCRAI_USER_ID": "7"}
    said = json.loads(launch("--explain", "--json", "--", "env", environment=secrets).stdout)
    found = launch("--", "env", environment=secrets).stdout.splitlines()
    told = {*said["environment"]["passed"], *said["environment"]["set"]}
    assert {line.partition("=")[0] for line in found} == told


def test_explain_names_runtime_executables_and_egress(launch: Launch) -> None:
    text = launch("--explain", "--connect", "192.0.2.1:443", "--", "sh").stdout
    lines = dict(line.split(": ", 1) for line in text.splitlines() if not line.startswith(" "))
    assert lines["egress"] == "192.0.2.1:443"
    assert "/usr/lib" in lines["read without a rule"].split(", ")
    assert "/dev/null" in lines["written without a rule"].split(", ")
    assert program.locate("sh", os.environ["PATH"]) in lines["started without a rule"].split(", ")
    assert len(text.splitlines()) < 20


def test_the_receipt_says_what_the_command_inherited(launch: Launch, tmp_path: Path) -> None:
    receipt = tmp_path / "receipt"
    launch("--receipt", receipt, "--limit", "files=64", "--", "true", environment={"MY_TOKEN": "x"})
    plan = json.loads(receipt.read_text())["plan"]
    assert plan["limits"] == {"files": 64}
    assert "MY_TOKEN" in plan["environment"]["withheld"]


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


BOTH_PHASES = {
    phase: {"access": [{"resource_type": "filesystem", "operation": "read", "target": phase}]}
    for phase in ("runtime", "install")
}


@pytest.mark.parametrize("kind", ["engine", "extractor"])
@pytest.mark.parametrize("phase", [None, "runtime", "install"])
def test_the_phase_and_the_subjects_kind_decide_which_rules_count(
    launch: Launch, tmp_path: Path, kind: str, phase: str | None
) -> None:
    for each in BOTH_PHASES:
        (tmp_path / each).write_text(each)
    manifest = tmp_path / "manifest.json"
    manifest.write_text(json.dumps(BOTH_PHASES))
    options = ["--manifest", str(manifest), "--subject", f"{kind}:x"]
    options += ["--phase", phase] if phase else []
    result = launch(*options, "--", "cat", tmp_path / "runtime", tmp_path / "install")
    assert (result.returncode, result.stdout) == (1, phase or "runtime")


def test_a_manifest_of_phases_is_not_a_modules(launch: Launch, tmp_path: Path) -> None:
    manifest = tmp_path / "manifest.json"
    manifest.write_text(json.dumps(BOTH_PHASES))
    for kind in ("module", "tool", "task"):
        result = launch("--manifest", manifest, "--subject", f"{kind}:x", "--", "true")
        assert result.returncode == 64
        assert "unknown key" in result.stderr


@pytest.mark.parametrize("phase", [None, "runtime", "install"])
def test_without_a_subject_a_manifest_of_phases_is_seen_for_what_it_is(
    launch: Launch, tmp_path: Path, phase: str | None
) -> None:
    for each in BOTH_PHASES:
        (tmp_path / each).write_text(each)
    manifest = tmp_path / "manifest.json"
    manifest.write_text(json.dumps(BOTH_PHASES))
    options = ["--manifest", str(manifest), *(["--phase", phase] if phase else [])]
    result = launch(*options, "--", "cat", tmp_path / "runtime", tmp_path / "install")
    assert (result.returncode, result.stdout) == (1, phase or "runtime")


@pytest.mark.parametrize("subject", [None, "module:x", "task:x", "core:x"])
def test_a_flat_manifest_has_one_phase_for_each_kind_that_has_one(
    launch: Launch, tmp_path: Path, subject: str | None
) -> None:
    options = ["--manifest", str(write_manifest(tmp_path, "read"))]
    options += ["--subject", subject] if subject else []
    result = launch(*options, "--phase", "runtime", "--", "cat", tmp_path / "data")
    assert (result.returncode, result.stdout, result.stderr) == (0, "seen", "")
    refused = launch(*options, "--phase", "install", "--", "true")
    assert refused.returncode == 64
    assert "has no phase 'install'" in refused.stderr


def test_a_broad_root_of_a_manifest_is_warned_of_and_holds(launch: Launch, tmp_path: Path) -> None:
    (tmp_path / "data").write_text("seen")
    manifest = tmp_path / "manifest.json"
    item = {"resource_type": "filesystem", "operation": "read", "target": "/"}
    manifest.write_text(json.dumps({"access": [item]}))
    result = launch("--manifest", manifest, "--", "cat", tmp_path / "data")
    assert (result.returncode, result.stdout) == (0, "seen")
    assert result.stderr == (
        f"democrai-launch: --manifest {manifest}: warning: access[0].target: / is broad;"
        " name the folder that is really needed\n"
    )


def test_a_subject_without_manifests_is_told_so_in_our_words(
    launch: Launch, tmp_path: Path
) -> None:
    manifest = write_manifest(tmp_path, "read")
    result = launch("--manifest", manifest, "--subject", "mcp:x", "--", "true")
    assert (result.returncode, result.stdout) == (64, "")
    assert result.stderr == (
        "democrai-launch: --manifest: a subject of the kind mcp has none"
        " (module, task, engine, extractor, tool, agent, pipeline, core have)\n"
    )


def test_a_manifest_with_many_mistakes_is_one_line_and_64(launch: Launch, tmp_path: Path) -> None:
    """More than a pipe holds: its reader must not wait for ever."""
    item = {"resource_type": "filesystem", "operation": "write", "target": "/data"}
    (tmp_path / "manifest.json").write_text(json.dumps({"access": [item] * 3000}))
    result = launch("--manifest", tmp_path / "manifest.json", "--", "true")
    assert (result.returncode, result.stdout, result.stderr.count("\n")) == (64, "", 1)


def test_a_path_with_control_characters_is_still_one_line(launch: Launch) -> None:
    result = launch("--read", "/no\nsuch\x1b[31m/path", "--", "true")
    assert result.returncode == 0
    assert result.stderr.count("\n") == 1
    assert "\x1b" not in result.stderr


def test_what_is_explained_is_one_line_for_each_rule(launch: Launch) -> None:
    result = launch("--explain", "--read", "/no\nsuch\x1b[31m/path\udcff")
    assert result.returncode == 0
    assert "/no\\nsuch\\x1b[31m/path\\udcff: exact" in result.stdout
    assert "\x1b" not in result.stdout


# Where a shell can send a stream so that nothing can be written there.
UNWRITABLE = {"closed": ">&-", "full": ">/dev/full", "a pipe that nobody reads": ">&{pipe}"}
HOW_IT_GOES = {
    "usage": (["--bogus", "--", "true"], 64),
    "not found": (["--", "no-such-command"], 127),
    "the command's own": (["--read", "/nonexistent", "--", "sh", "-c", "exit 3"], 3),
    "a supervised command's own": (
        ["--read", "/nonexistent", "--modify", "/tmp", "--", "sh", "-c", "exit 3"], 3,
    ),
    "refused": (["--limit", "files=9000000000000", "--", "true"], 125),
    "found out at the very end": (["--", "FORMATLESS"], 126),
}  # fmt: skip


def with_streams(redirection: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the launcher with streams as a shell redirects them."""
    reader, writer = os.pipe()
    os.close(reader)
    words = ["bash", "-c", f'"$@" {redirection.format(pipe=writer)}', "sh", sys.executable, "-m"]
    words += ["democrai_osguard_launcher", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(PACKAGES)}
    environment.pop("DEMOCRAI_ACCESS", None)
    try:
        return subprocess.run(
            words, env=environment, capture_output=True, text=True, check=False, pass_fds=[writer]
        )
    finally:
        os.close(writer)


@pytest.mark.parametrize("where", UNWRITABLE)
@pytest.mark.parametrize("how", HOW_IT_GOES)
def test_what_cannot_be_said_does_not_change_the_code(tmp_path: Path, where: str, how: str) -> None:
    arguments, code = HOW_IT_GOES[how]
    formatless = tmp_path / "formatless"
    formatless.write_text("no program")
    formatless.chmod(0o755)
    words = [str(formatless) if word == "FORMATLESS" else word for word in arguments]
    heard = with_streams("", *words)
    result = with_streams(f"2{UNWRITABLE[where]}", *words)
    assert (heard.returncode, result.returncode, result.stdout) == (code, code, "")
    assert heard.stderr.startswith("democrai-launch: ")


@pytest.mark.parametrize("where", UNWRITABLE)
@pytest.mark.parametrize("asked", ["--help", "--version", "--explain", "--explain --json"])
def test_an_answer_that_nobody_can_get_is_125_and_one_line(where: str, asked: str) -> None:
    result = with_streams(UNWRITABLE[where], *asked.split())
    assert result.returncode == 125
    assert result.stderr.startswith("democrai-launch: standard output: ")
    assert result.stderr.count("\n") == 1


def test_a_closed_stream_stays_closed_and_nothing_takes_its_place(tmp_path: Path) -> None:
    receipt = tmp_path / "receipt"
    options = ("--receipt", str(receipt), "--read", "/nonexistent")
    script = "import os\ntry: os.fstat(2)\nexcept OSError as error: print(error.strerror)"
    result = with_streams("2>&-", *options, "--", sys.executable, "-c", script)
    assert result.stdout == "Bad file descriptor\n"
    assert json.loads(receipt.read_text())["format"] == 1  # no line of ours in it


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
