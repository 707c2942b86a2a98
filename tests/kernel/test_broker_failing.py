"""A command can neither wear its broker out nor outlive it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from kernel.conftest import in_a_fork, plan_for, prctl
from kernel.people import LAUNCHER
from kernel.test_broker_second_look import Careless
from kernel.test_broker_starting import TRUE, outcome

from democrai_osguard_launcher import name_answers, seccomp
from democrai_osguard_launcher.broker import Broker
from democrai_osguard_launcher.name_answers import NameAnswers

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from kernel.conftest import Free

    from democrai_osguard_launcher.broker import Roots
    from democrai_osguard_launcher.plan import Plan

pytestmark = pytest.mark.needs("landlock", "landlock-truncate", "seccomp")

PR_SET_PDEATHSIG = 1
MOST_OPEN = 40  # descriptors: the memories of some callers among them


class FailingBroker(Broker):
    """Meets something that nobody has thought of."""

    def tend(self, ready: Mapping[int, int]) -> None:
        if self.listener in ready:
            raise RuntimeError("unheard of")


class Failing(Careless):
    """Who looks on outside, with such a broker."""

    def make_broker(self, plan: Plan, roots: Roots, listener: int) -> Broker:
        del plan
        return FailingBroker(roots, listener, seccomp.brokered_numbers(os.uname().machine))


def _survive(tmp_path: Path) -> None:
    prctl(PR_SET_PDEATHSIG, 0)
    os.mkdir(tmp_path / "made")


def test_a_supervisor_that_fails_ends_the_command(tmp_path: Path) -> None:
    def speak() -> None:
        os.dup2(1, 2)
        _survive(tmp_path)

    plan = plan_for([("create", tmp_path)])
    with open(os.devnull, "rb") as nothing:
        own = Failing(nothing.fileno())
        assert in_a_fork(lambda: _survive(tmp_path), plan, companion=own) == "died: 125"
        said = in_a_fork(speak, plan, companion=own)
    assert said == "democrai-launch: the supervisor failed: RuntimeError\n"
    assert not (tmp_path / "made").exists()


def test_where_no_thread_can_be_started_a_name_means_nothing_yet(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object) -> int:
        raise RuntimeError("can't start new thread")

    names = NameAnswers(lambda _: [b"\x7f\0\0\1"])
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    with monkeypatch.context() as patched:
        patched.setattr(name_answers, "start_new_thread", refuse)
        assert not names.ask(["good.test"])
        assert not names.is_under_way(["good.test"])
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before
    assert names.ask(["good.test"])
    while not names.take():
        pass
    assert names.stands_for("good.test", b"\x7f\0\0\1")


OFTEN = """
import os, sys
def often(act):
    for _ in range(100):
        child = os.fork()
        if child == 0:
            try:
                act()
            except OSError as error:
                os._exit(error.errno)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print("done", flush=True)
    sys.stdin.readline()
"""
LONG = {
    "links": "often(lambda: os.open('link0', os.O_CREAT | os.O_WRONLY))",
    "scripts": "often(lambda: os.execv('script0', ['x']))",
}


@pytest.mark.parametrize("way", LONG)
def test_a_way_that_is_too_long_costs_the_broker_no_descriptor(way: str, tmp_path: Path) -> None:
    for number in range(50):
        (tmp_path / f"link{number}").symlink_to(f"link{number + 1}")
    for number in range(8):
        script = tmp_path / f"script{number}"
        script.write_text(f"#!{tmp_path}/script{number + 1}\n")
        script.chmod(0o755)
    rules = [word for each in ("--create", "--read", "--execute") for word in (each, str(tmp_path))]
    command = [sys.executable, "-I", "-c", OFTEN + LONG[way]]
    with subprocess.Popen(
        [*LAUNCHER, *rules, "--", *command], cwd=tmp_path, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == "done\n"
        assert len(os.listdir(f"/proc/{process.pid}/fd")) < MOST_OPEN
        process.communicate("\n")
    assert process.returncode == 0


def test_a_file_of_memory_is_ended_where_the_first_look_was_fooled(
    tmp_path: Path, free: Free
) -> None:
    def start() -> int:
        return outcome(lambda: os.execve(0, ["x"], {}))  # noqa: S606

    def killed() -> None:
        code = start()
        assert code == -signal.SIGKILL, code

    def runs() -> None:
        assert start() == 0

    before, memory = os.dup(0), os.memfd_create("program", 0)
    with open(TRUE, "rb") as program:
        os.write(memory, program.read())
    try:
        os.dup2(memory, 0)
        with open(os.devnull, "rb") as nothing:
            plan = plan_for([("create", tmp_path)])
            assert in_a_fork(killed, plan, companion=Careless(nothing.fileno())) == "allowed"
        assert free(runs) == "allowed"
    finally:
        os.dup2(before, 0)
        os.close(before)
        os.close(memory)
