"""Input that is not understood runs nothing: one line says what and where."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from kernel.conftest import PACKAGES, rules

if TYPE_CHECKING:
    from pathlib import Path

    from kernel.conftest import Launch

pytestmark = pytest.mark.needs("landlock", "seccomp")

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


def test_a_path_with_control_characters_is_still_one_line(launch: Launch) -> None:
    result = launch("--read", "/no\nsuch\x1b[31m/path", "--", "true")
    assert result.returncode == 0
    assert result.stderr.count("\n") == 1
    assert "\x1b" not in result.stderr
