"""`run_subprocess(supervised=True)`: an act of the child waits until a person has answered."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from sdk.host import Host, rule

from democrai_osguard import sdk
from democrai_osguard.errors import ContractError

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.needs("landlock", "landlock-truncate", "seccomp")

RUN = """
import asyncio
from democrai_osguard import sdk

async def run(command, options):
    process = await sdk.tasks.run_subprocess(
        *command, stdout=sdk.tasks.PIPE, stderr=sdk.tasks.PIPE, timeout=60, **options)
    out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()

def main(*command, **options):
    return asyncio.run(run(command, options))
"""
# Somebody elsewhere: waits for one question, says what it was, and answers it.
SOMEBODY = """
import sys, time
from democrai_osguard.approvals import Operator, open_service
service = open_service()
print("ready", flush=True)
until = time.monotonic() + 60
while not (asked := service.list_requests()) and time.monotonic() < until:
    time.sleep(0.02)
one = asked[0]
print(one.held, one.label, one.rule.target, " > ".join(map(str, one.chain)), one.origin.task_id,
      one.origin.session_key, one.origin.user_id, sep="|", flush=True)
operator = Operator("ann", super_role=True)
if sys.argv[1] == "once":
    service.approve_once(one.id, operator)
else:
    service.decide(one.id, sys.argv[1], operator)
"""


def supervised(host: Host, *command: str, **options: object) -> Any:  # noqa: ANN401 - the module's
    main = host.load(RUN)
    declared = tuple(rule("system_dependency", "execute", name) for name in ("cat", "sh"))
    with host.guard(access=declared):
        return main(*command, supervised=True, **options)


@pytest.mark.parametrize(
    ("answer", "seen"), [("once", "secret"), ("session", "secret"), ("denied", "")]
)
def test_a_person_answers_for_a_child(answer: str, seen: str, host: Host) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", SOMEBODY, answer], stdout=subprocess.PIPE, text=True
    ) as somebody:
        assert somebody.stdout is not None
        assert somebody.stdout.readline() == "ready\n"
        code, out, err = supervised(host, "cat", str(host.outside / "file"))
        question = somebody.stdout.readline().rstrip("\n").split("|")
    assert (code, out) == ((0, seen) if seen else (1, ""))
    assert ("Permission denied" in err) == (not seen)
    held, label, target, chain, task, session, user = question
    assert (held, label, target) == ("True", "Filesystem read", str(host.outside / "file"))
    assert (chain, session, user) == ("module:notes", "s-1", "7")
    assert task.endswith(f": cat {host.outside / 'file'}")


def test_silence_is_a_no(host: Host) -> None:
    code, out, err = supervised(host, "cat", str(host.outside / "file"), ask_timeout=0.3)
    assert (code, out) == (1, "")
    assert "Permission denied" in err
    assert "democrai-launch" not in err  # the application says what it waits for, or does not
    assert host.service.list_requests() == []


def test_without_supervision_nobody_is_asked(host: Host) -> None:
    main = host.load(RUN)
    with host.guard(access=(rule("system_dependency", "execute", "cat"),)):
        code, _, err = main("cat", str(host.outside / "file"))
    assert (code, "Permission denied" in err) == (1, True)
    assert host.service.list_requests(pending=False) == []


def test_without_the_launcher_nothing_can_wait(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEMOCRAI_SANDBOX_OS_ENABLED", "false")
    with pytest.raises(sdk.tasks.LaunchRefused, match="no act can wait for a person"):
        supervised(host, "cat", str(host.outside / "file"))


@pytest.mark.parametrize("seconds", [0, -1, float("inf"), float("nan")])
def test_a_time_to_wait_is_a_time(seconds: float, host: Host) -> None:
    with pytest.raises(ContractError, match="ask_timeout"):
        supervised(host, "cat", "/dev/null", ask_timeout=seconds)


def test_the_child_chooses_no_store_to_be_approved_by(host: Host, tmp_path: Path) -> None:
    names = ("XDG_STATE_HOME", "HOME", "DEMOCRAI_STATE_DIR")
    own = {"PATH": os.environ["PATH"], **dict.fromkeys(names, str(tmp_path / "temp"))}
    supervised(host, "cat", str(host.outside / "file"), env=own, ask_timeout=0.3)
    assert os.listdir(tmp_path / "temp") == []
    assert len(host.service.list_requests(pending=False)) == 1


def test_guarded_code_sets_no_variable_of_the_launcher(host: Host) -> None:
    """The loader of a program writes a file, or loads a library, where a variable says so."""
    variables = {"LD_DEBUG": "libs", "LD_DEBUG_OUTPUT": str(host.outside / "seen")}
    command = [sys.executable, "-I", "-c", "pass"]
    subprocess.run(command, env={**os.environ, **variables}, check=True)
    control = [name for name in os.listdir(host.outside) if name.startswith("seen")]
    assert control, "this loader does not heed it"
    for name in control:
        os.unlink(host.outside / name)
    main = host.load(f"import os\n{RUN}\nos.environ.update({variables!r})")
    with host.guard(access=(rule("system_dependency", "execute", "cat"),)):
        assert main("cat", "/dev/null")[0] == 0
    assert os.listdir(host.outside) == ["file"]
