"""Kernels that lack a layer, played by a filter that makes its calls unknown."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from kernel.conftest import PACKAGES, in_a_fork, plan_for

from democrai_osguard_launcher import bpf, kernel, seccomp

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.needs("landlock", "seccomp")

LANDLOCK_CREATE_RULESET = 444
SECCOMP = {"x86_64": 317, "aarch64": 277}[os.uname().machine]
CLOSE_RANGE = 436


def launch_without(*calls: int, options: tuple[str, ...] = ()) -> tuple[int, str, str]:
    """Run `democrai-launch … -- echo ran` where these calls do not exist."""
    absent = bpf.answer(bpf.errno_action(errno.ENOSYS))
    machine = os.uname().machine
    program = bpf.program(
        seccomp.ARCHITECTURES[machine], (bpf.block(call, absent) for call in calls)
    )

    def forget() -> None:
        kernel.set_no_new_privs()
        kernel.load_filter(program)

    command = [sys.executable, "-m", "democrai_osguard_launcher", *options, "--", "echo", "ran"]
    result = subprocess.run(
        command, capture_output=True, text=True, check=False, preexec_fn=forget, timeout=600
    )
    return result.returncode, result.stdout, result.stderr


def test_without_landlock_nothing_runs() -> None:
    code, output, complaint = launch_without(LANDLOCK_CREATE_RULESET)
    assert (code, output) == (125, "")
    assert "no Landlock" in complaint


def test_without_seccomp_nothing_runs() -> None:
    code, output, complaint = launch_without(SECCOMP)
    assert (code, output) == (125, "")
    assert "no seccomp" in complaint


def test_without_both_nothing_runs_even_where_a_part_would_do() -> None:
    code, output, _ = launch_without(
        SECCOMP, LANDLOCK_CREATE_RULESET, options=("--require", "partial")
    )
    assert (code, output) == (125, "")


@pytest.mark.parametrize("calls", [(LANDLOCK_CREATE_RULESET,), (SECCOMP,)])
def test_with_less_it_runs_when_told_to_and_says_what_is_missing(calls: tuple[int, ...]) -> None:
    code, output, complaint = launch_without(*calls, options=("--best-effort",))
    assert (code, output) == (0, "ran\n")
    assert "no Landlock" in complaint or "no seccomp" in complaint


def test_a_layer_that_fails_while_it_is_enforced_runs_nothing() -> None:
    code, output, complaint = launch_without(CLOSE_RANGE, options=("--best-effort",))
    assert (code, output) == (125, "")
    # Before it stand lines about what this kernel's Landlock cannot hold.
    assert complaint.endswith("democrai-launch: close_range: Function not implemented\n")


def test_a_path_that_vanishes_after_the_plan_opens_nothing(tmp_path: Path) -> None:
    (tmp_path / "inside").mkdir()
    (tmp_path / "outside").write_text("secret")
    plan = plan_for([("read", tmp_path / "inside")])
    (tmp_path / "inside").rmdir()
    assert in_a_fork((tmp_path / "outside").read_text, plan) == "EACCES"
    assert in_a_fork(lambda: os.listdir(tmp_path), plan) == "EACCES"


VANISHING = """
import os, sys
from democrai_osguard_launcher import confinement, main
make_ready = confinement.make_ready
def late(*arguments):
    os.rmdir(sys.argv[2])
    return make_ready(*arguments)
confinement.make_ready = late
main.run()
"""


def test_a_path_that_vanishes_after_the_plan_is_said_in_one_line(tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    command = ["--read", inside, "--", "/bin/sh", "-c", "echo ran"]
    done = subprocess.run(
        [sys.executable, "-c", VANISHING, *map(str, command)],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(PACKAGES)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "ran\n"), done.stderr
    assert done.stderr.endswith(
        f"democrai-launch: these paths are gone since and open nothing: {inside}\n"
    )
    assert done.stderr.count(str(inside)) == 1
