"""`democrai-osguard status` says what runs, in words and in JSON, and on whose word."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from command_line import osguard

from democrai_osguard.cli.status import running_fact, settings_fact
from democrai_osguard.settings import InForce, OsSettings
from democrai_osguard.ui.sandboxes import Sandbox

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SLEEP = "import time; print('up', flush=True); time.sleep(600)"
CLAIM = {"DEMOCRAI_NETWORK_SUBJECT": "sleeper", "DEMOCRAI_NETWORK_SUBJECT_KIND": "tool"}


@pytest.fixture
def sleeper() -> Iterator[int]:
    """Return the number of a process that says that it is a sandbox."""
    made = subprocess.Popen(
        [sys.executable, "-c", SLEEP], stdout=subprocess.PIPE, text=True, env=os.environ | CLAIM
    )
    assert made.stdout is not None
    assert made.stdout.readline() == "up\n"
    yield made.pid
    made.kill()
    made.communicate()


def test_what_runs_is_listed_in_json(sleeper: int) -> None:
    document = json.loads(osguard("status", "--json").stdout)
    (found,) = [each for each in document["running"] if each["pid"] == sleeper]
    assert (found["subject"], found["known_from"]) == ("tool:sleeper", "itself")


def test_what_runs_is_said_in_words(sleeper: int) -> None:
    text = osguard("status").stdout
    assert f"tool:sleeper (process {sleeper}, by its own word): " in text


def test_settings_are_told_with_their_place_and_what_differs(tmp_path: Path) -> None:
    file = tmp_path / "osguard.toml"
    file.write_text('[sandbox.os]\nenabled = true\nrequire = "full"\n')
    own = {"DEMOCRAI_CONFIG": str(file), "DEMOCRAI_SANDBOX_OS_LANDLOCK_EXTRA_READ_PATHS": "/srv/m"}
    (variable,) = own.keys() - {"DEMOCRAI_CONFIG"}
    line = next(each for each in osguard("status", **own).stdout.splitlines() if "settings" in each)
    differs = 'sandbox.os.landlock.extra_read_paths = ["/srv/m"], sandbox.os.require = "full"'
    assert line == f"settings: {file} and {variable}: {differs}"
    assert json.loads(osguard("status", "--json", **own).stdout)["settings"] == {
        "file": str(file),
        "variables": [variable],
        "changed": {
            "sandbox.os.landlock.extra_read_paths": ["/srv/m"],
            "sandbox.os.require": "full",
        },
    }


def test_settings_that_nobody_made_are_the_defaults() -> None:
    assert settings_fact(InForce(OsSettings(), None, ())).words == (
        "settings: no file and no variable: all defaults"
    )


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("c.toml", "[sandbox.os]\nrequires = 'full'\n", "sandbox.os.requires: no such setting ("),
        ("c.toml", "[sandbox.os]\nrequire = 'most'\n", "sandbox.os.require: 'most' is none of "),
        ("c.toml", "[sandbox.os\n", "Expected ']' at the end of a table declaration (at line 1,"),
        ("c.yaml", "sandbox: [\n", "not YAML: "),
    ],
)
def test_a_settings_file_that_is_not_understood_is_an_input_error(
    name: str, text: str, says: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(text)
    for words in (("status",), ("status", "--json")):
        done = osguard(*words, DEMOCRAI_CONFIG=str(tmp_path / name))
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (64, "", 1)
        assert done.stderr.startswith(f"democrai-osguard: {tmp_path / name}: {says}")


@pytest.mark.parametrize(
    ("variable", "says"),
    [
        ("DEMOCRAI_SANDBOX_OS_REQUIRE", "'most' is none of full, partial, none"),
        ("DEMOCRAI_SANDBOX_OS_REQUIRES", "no such setting ("),
    ],
)
def test_a_variable_that_is_not_understood_is_an_input_error(variable: str, says: str) -> None:
    done = osguard("status", **{variable: "most"})
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (64, "", 1)
    assert done.stderr.startswith(f"democrai-osguard: {variable}: {says}")


def test_nothing_that_runs_is_said_as_well() -> None:
    fact = running_fact(list)
    assert (fact.value, fact.words) == ([], "running: no sandbox that this user can see")


def test_each_sandbox_is_told_with_who_vouches_for_it() -> None:
    found = [Sandbox(7, "module:a", "sleep 1", "helper"), Sandbox(8, "tool:b", "cat", "kernel")]
    fact = running_fact(lambda: found)
    assert fact.words == "running: 2 sandboxes"
    assert fact.follows == (
        "module:a (process 7, by the helper's word): sleep 1;"
        " tool:b (process 8, confined by the kernel's word): cat"
    )


def test_a_host_that_does_not_tell_is_no_failure() -> None:
    def hidden() -> list[Sandbox]:
        raise PermissionError(13, "Permission denied", "/proc")

    fact = running_fact(hidden)
    assert fact.value is None
    assert fact.words == "running: cannot be told (Permission denied)"


@pytest.mark.parametrize("words", [("status",), ("helper", "status")])
def test_the_helper_is_asked_where_the_settings_say(words: tuple[str, ...], tmp_path: Path) -> None:
    config, socket = tmp_path / "c.toml", tmp_path / "helper"
    config.write_text(f"[sandbox.os]\nhelper_socket = '{socket}'\n")
    assert str(socket) not in osguard(*words).stdout  # the control
    said = osguard(*words, DEMOCRAI_CONFIG=str(config)).stdout
    assert f"at {socket}" in said
