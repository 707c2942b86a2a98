"""`democrai-osguard status` says what runs, in words and in JSON, and on whose word."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from command_line import osguard

from democrai_osguard.cli.status import running_fact
from democrai_osguard.ui.sandboxes import Sandbox

if TYPE_CHECKING:
    from collections.abc import Iterator

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
