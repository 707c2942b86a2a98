"""`democrai-osguard learn` from outside: codes, streams, signals, places that cannot be written."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
from kernel.learned import (
    OSGUARD,
    environment,
    fresh,
    osguard_learn,
)

if TYPE_CHECKING:
    from pathlib import Path


pytestmark = pytest.mark.needs("landlock", "landlock-truncate", "seccomp")


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
