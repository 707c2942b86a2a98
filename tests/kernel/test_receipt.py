"""The receipt: each class is tried both ways, and a layer that does not hold refuses to start."""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING

import pytest
from kernel.conftest import in_a_fork, plan_for

from democrai_osguard_launcher import confinement, kernel, landlock, network_trials, receipt
from democrai_osguard_launcher.enforcement import Restrictions, enforce, enforce_always, prepare
from democrai_osguard_launcher.errors import NotEnforced
from democrai_osguard_launcher.landlock import Abilities
from democrai_osguard_launcher.options import Options
from democrai_osguard_launcher.plan import PathRights, Plan

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kernel.conftest import Launch

    Change = Callable[[Plan], dict[str, object]]

pytestmark = pytest.mark.needs("landlock", "landlock-truncate", "landlock-scopes", "seccomp")

CLASSES = ("read", "modify", "execute", "create", "delete", "signals", "system calls", "network")


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a folder with something in it; the command stands beside it, where no rule leads."""
    (tmp_path / "work/folder").mkdir(parents=True)
    (tmp_path / "beside").mkdir()
    monkeypatch.chdir(tmp_path / "beside")
    return tmp_path / "work"


def test_each_class_is_tried_both_ways(launch: Launch, work: Path) -> None:
    file = work.parent / "receipt.json"
    rules = ("--create", work, "--delete", work, "--connect", "192.0.2.1:80", "--best-effort")
    assert launch("--receipt", file, *rules, "--", "true").returncode == 0
    document = json.loads(file.read_text())
    assert document["kernel"]["release"] == os.uname().release
    tried = {(trial["class"], trial["expected"]) for trial in document["tried"]}
    expected = {(each, word) for each in CLASSES for word in ("allowed", "refused")}
    if ("execute", "allowed") not in tried:  # before Linux 6.14 nobody can ask
        expected -= {("execute", "allowed"), ("execute", "refused")}
    assert tried >= {*expected, ("metadata", "refused")}
    assert os.listdir(work) == ["folder"]
    assert sorted(os.listdir(work.parent)) == ["beside", "receipt.json", "work"]


def test_the_receipt_is_not_the_commands_to_write(launch: Launch, tmp_path: Path) -> None:
    file = tmp_path / "receipt.json"
    shell = ["sh", "-c", f"ls /proc/self/fd; echo forged > {file}"]
    result = launch("--receipt", file, "--", *shell)
    assert "Permission denied" in result.stderr
    assert "forged" not in file.read_text()


def test_a_receipt_that_cannot_be_written_runs_nothing(launch: Launch, tmp_path: Path) -> None:
    result = launch("--receipt", tmp_path / "no/where", "--", "echo", "ran")
    assert (result.returncode, result.stdout) == (64, "")


def test_a_layer_that_does_not_hold_refuses_to_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """The trial is made without the enforcement, as if the kernel had only pretended."""
    monkeypatch.setattr(confinement, "enforce", lambda *_: None)
    with pytest.raises(NotEnforced, match="listing / should be refused, and was allowed"):
        confinement.confine(confinement.make_ready(plan_for([])), Options(), {})


def unhandled(filesystem: int = 0, network: int = 0, scopes: int = 0) -> Change:
    """Leave rights out of what the ruleset handles, so that nobody judges them."""

    def change(plan: Plan) -> dict[str, object]:
        files, ports, scoped = plan.handled
        handled = Abilities(files & ~filesystem, ports & ~network, scoped & ~scopes)
        paths = tuple(
            PathRights(path, rights & ~filesystem, why) for path, rights, why in plan.paths
        )
        ports_left = tuple(port for port in plan.ports if not port.rights & network)
        return {"handled": handled, "paths": paths, "ports": ports_left}

    return change


def ungranted(rights: int) -> Change:
    """Leave rights out of the rules, so that what they allow is refused."""

    def change(plan: Plan) -> dict[str, object]:
        paths = (PathRights(path, own & ~rights, why) for path, own, why in plan.paths)
        return {"paths": tuple(paths)}

    return change


def socket_kinds(*kinds: str) -> Change:
    return lambda _plan: {"sockets": kinds}


MAKING = landlock.OPERATION_RIGHTS["create"]
REMOVING = landlock.OPERATION_RIGHTS["delete"]
# What is done otherwise than planned, and which trial must notice.
MISTAKES: dict[str, tuple[Change, str]] = {
    "reading is not judged": (unhandled(landlock.READ_DIR), "listing / should be refused"),
    "writing is not judged": (unhandled(landlock.WRITE_FILE), "to write should be refused"),
    "creating is not judged": (unhandled(MAKING), "a second name for the folder .* be refused"),
    "deleting is not judged": (unhandled(REMOVING), "unlinking .* should be refused"),
    "starting is not judged": (unhandled(landlock.EXECUTE), "a program that no rule names"),
    "signals are not judged": (unhandled(scopes=landlock.SCOPE_SIGNAL), "asking for the parent"),
    "connecting is not judged": (unhandled(network=landlock.CONNECT_TCP), "TCP to port 1 should"),
    "binding is not judged": (unhandled(network=landlock.BIND_TCP), "a TCP port of one's own"),
    "reading is not granted": (ungranted(landlock.READ_FILE), "reading /dev/null should be all"),
    "writing is not granted": (ungranted(landlock.WRITE_FILE), "writing to /dev/null should be a"),
    "creating is not granted": (ungranted(MAKING), "a second name for the folder .* be allowed"),
    "deleting is not granted": (ungranted(REMOVING), "onto itself should be allowed"),
    "the port is not granted": (lambda _plan: {"ports": ()}, "TCP to port 80 should be allowed"),
    "TCP does not exist": (socket_kinds(), "a TCP socket should be allowed"),
    "unix sockets exist": (socket_kinds("unix", "tcp"), "a unix socket should be refused"),
}


@pytest.mark.parametrize("mistake", [None, *MISTAKES])
def test_each_mistake_is_noticed(work: Path, mistake: str | None) -> None:
    change, message = MISTAKES[mistake] if mistake else (lambda _plan: {}, "")
    plan = plan_for(
        [("create", work), ("delete", work), ("modify", work), ("connect", "192.0.2.1:80")]
    )
    if mistake and "starting" in mistake and not can_ask_about_starting():
        pytest.skip("before Linux 6.14 nobody can ask whether a program could be started")

    def confine() -> None:
        candidates = receipt.look_around(plan)
        changed = prepare(changed_plan(plan, change(plan)), supervised=False)
        ours = [each for each in (candidates.program, candidates.command) if each is not None]
        enforce_always(has_seccomp=True)
        enforce(Restrictions(plan, *changed[1:]), ours)
        receipt.attempt(plan, candidates, network_trials.network_trials(plan, None))

    verdict = in_a_fork(confine, None)
    assert verdict == "allowed" if mistake is None else re.search(message, verdict), verdict


def can_ask_about_starting() -> bool:
    program = os.open("/bin/true", os.O_PATH)
    try:
        kernel.check_execution(program)
    except OSError:
        return False
    finally:
        os.close(program)
    return True


def changed_plan(plan: Plan, fields: dict[str, object]) -> Plan:
    as_it_is = dict(zip(Plan._fields, plan, strict=True))
    return Plan(**{**as_it_is, **fields})  # type: ignore[arg-type]
