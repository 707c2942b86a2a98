"""The receipt: each class is tried both ways, and a layer that does not hold refuses to start."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from kernel.conftest import in_a_fork, plan_for

from democrai_osguard_launcher import confinement, kernel, landlock, network_trials, receipt
from democrai_osguard_launcher.broker import Broker
from democrai_osguard_launcher.enforcement import (
    Programs,
    Restrictions,
    argument_program,
    enforce,
    enforce_always,
    prepare,
)
from democrai_osguard_launcher.landlock import Abilities
from democrai_osguard_launcher.options import Options
from democrai_osguard_launcher.plan import PathRights, Plan
from democrai_osguard_launcher.socket_trials import socket_trials
from democrai_osguard_launcher.trial import check

if TYPE_CHECKING:
    from collections.abc import Callable

    from kernel.conftest import Launch

    Change = Callable[[Plan], dict[str, object]]

pytestmark = pytest.mark.needs("landlock", "landlock-truncate", "landlock-scopes", "seccomp")

ABI_UNIX = 9
NOBODY = 65534
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
    assert document["landlock_errata"] == kernel.landlock_errata()
    tried = {(trial["class"], trial["expected"]) for trial in document["tried"]}
    expected = {(each, word) for each in CLASSES for word in ("allowed", "refused")}
    if ("execute", "allowed") not in tried:  # before Linux 6.14 nobody can ask
        expected -= {("execute", "allowed"), ("execute", "refused")}
    assert tried >= {*expected, ("metadata", "refused")}
    assert os.listdir(work) == ["folder"]
    assert sorted(os.listdir(work.parent)) == ["beside", "receipt.json", "work"]


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM])
def test_a_declared_socket_is_tried_and_who_listens_hears_nothing(
    kind: socket.SocketKind, launch: Launch, work: Path
) -> None:
    if kernel.landlock_abi() >= ABI_UNIX:
        pytest.skip("Landlock judges which sockets are connected to")
    file = work.parent / "receipt.json"
    with socket.socket(socket.AF_UNIX, kind) as listener:
        listener.bind(str(work / "socket"))
        if kind == socket.SOCK_STREAM:
            listener.listen()
        rules = ("--modify", work / "socket")
        assert launch("--receipt", file, *rules, "--", "true").returncode == 0
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):
            listener.accept() if kind == socket.SOCK_STREAM else listener.recv(1)
    tried = [each for each in json.loads(file.read_text())["tried"] if "unix" in each["class"]]
    assert [(each["act"], each["expected"], each["outcome"]) for each in tried] == [
        ("connecting to /", "refused", "EACCES"),
        (f"connecting to {work / 'socket'}", "allowed", "allowed"),
    ]


@pytest.mark.parametrize(
    ("opened", "fault"),
    [(True, "connecting to / should be refused"), (False, "socket should be allowed")],
)
def test_a_broker_that_judges_paths_wrongly_runs_nothing(
    opened: bool, fault: str, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kernel.landlock_abi() >= ABI_UNIX:
        pytest.skip("Landlock judges which sockets are connected to")
    monkeypatch.setattr(Broker, "covers", lambda *_: opened)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(work / "socket"))
        listener.listen()
        plan = plan_for([("modify", work / "socket")])
        verdict = in_a_fork(lambda: check(tuple(socket_trials(plan))), plan)
    assert fault in verdict


def test_the_receipt_is_not_the_commands_to_write(launch: Launch, tmp_path: Path) -> None:
    file = tmp_path / "receipt.json"
    shell = ["sh", "-c", f"ls /proc/self/fd; echo forged > {file}"]
    result = launch("--receipt", file, "--", *shell)
    assert "Permission denied" in result.stderr
    assert "forged" not in file.read_text()


def test_a_receipt_that_cannot_be_written_runs_nothing(launch: Launch, tmp_path: Path) -> None:
    result = launch("--receipt", tmp_path / "no/where", "--", "echo", "ran")
    assert (result.returncode, result.stdout) == (64, "")


@pytest.mark.parametrize("option", ["--receipt", "--trace", "--observe"])
def test_a_report_is_not_written_through_a_link_that_a_command_has_left(
    option: str, launch: Launch, work: Path
) -> None:
    precious, report = work.parent / "precious", work / "report"
    precious.write_text("precious")
    rules = ("--create", work)
    assert launch(*rules, "--", "ln", "-s", precious, report).returncode == 0
    result = launch(*rules, option, report, "--", "echo", "ran")
    assert (result.returncode, result.stdout) == (64, "")
    assert result.stderr == f"democrai-launch: {option}: {report}: it is a link\n"
    assert precious.read_text() == "precious"
    report.unlink()
    assert launch(*rules, option, report, "--", "echo", "ran").stdout == "ran\n"


@pytest.mark.parametrize("option", ["--receipt", "--trace", "--observe"])
@pytest.mark.parametrize("left", ["ln precious work/report", "mkfifo work/report"])
def test_a_report_is_not_written_to_what_a_command_has_left(
    left: str, option: str, launch: Launch, work: Path
) -> None:
    precious, report = work.parent / "precious", work / "report"
    precious.write_text("precious")
    subprocess.run(left.split(), cwd=work.parent, check=True)
    result = launch(option, report, "--", "echo", "ran")
    assert (result.returncode, result.stdout) == (64, "")
    why = "it has a second name" if left.startswith("ln") else "it is not a file"
    assert result.stderr == f"democrai-launch: {option}: {report}: {why}\n"
    assert precious.read_text() == "precious"
    report.unlink()
    report.write_text("of an earlier run, and longer than what is written now" * 1000)
    assert launch(option, report, "--", "echo", "ran").stdout == "ran\n"
    assert "earlier" not in report.read_text()
    assert launch(option, "/dev/null", "--", "echo", "ran").stdout == "ran\n"


@pytest.mark.parametrize("stream", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"])
def test_a_receipt_can_be_written_to_what_is_open_already(launch: Launch, stream: str) -> None:
    assert json.loads(launch("--receipt", stream, "--", "true").stdout)["tried"]


def test_a_layer_that_does_not_hold_refuses_to_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """The trial is made without the enforcement, as if the kernel had only pretended."""
    monkeypatch.setattr(confinement, "enforce", lambda *_: None)
    ready = confinement.make_ready(plan_for([]), {})
    verdict = in_a_fork(lambda: confinement.confine(ready, Options(), {}), None)
    assert "listing / should be refused, and was allowed" in verdict


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


def not_judged(*calls: str) -> Change:
    """Leave calls out of the program that judges arguments."""
    return lambda _plan: {"left_out": calls}


def unlisted(_plan: Plan) -> dict[str, object]:
    """Let every call exist."""
    return {"listed": False}


ASKING = kernel.AT_EMPTY_PATH | kernel.AT_EXECVE_CHECK
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
    "the command is not granted": (ungranted(landlock.EXECUTE), "starting the command should be a"),
    "every call exists": (unlisted, "unshare of nothing should be refused"),
    "TCP does not exist": (socket_kinds(), "a TCP socket should be allowed"),
    "every socket exists": (not_judged("socket"), "a netlink socket should be refused"),
    "unix sockets exist": (socket_kinds("unix", "tcp"), "a unix socket should be refused"),
}
ABOUT_STARTING = ("starting is not judged", "the command is not granted")


@pytest.mark.parametrize("mistake", [None, *MISTAKES])
def test_each_mistake_is_noticed(work: Path, mistake: str | None) -> None:
    change, message = MISTAKES[mistake] if mistake else (lambda _plan: {}, "")
    plan = plan_for(
        [
            *((operation, work) for operation in ("create", "delete", "modify")),
            ("connect", "192.0.2.1:80"),
            ("execute", "/usr/bin/true"),
        ],
        dials=False,  # there is no broker here
    )
    if mistake in ABOUT_STARTING and not can_ask_about_starting():
        pytest.skip("before Linux 6.14 nobody can ask whether a program could be started")
    if mistake == "unix sockets exist" and "unix" in plan.sockets:
        pytest.skip("no mistake where Landlock judges which sockets are connected to")

    verdict = in_a_fork(lambda: confine_otherwise(plan, change), None)
    assert verdict == "allowed" if mistake is None else re.search(message, verdict), verdict


def confine_otherwise(plan: Plan, change: Change) -> None:
    """Enforce another plan than the one that is tried."""
    candidates = receipt.Surroundings(plan, {}).look_around()
    held = receipt.hold(candidates)
    fields = change(plan)
    listed, left_out = fields.pop("listed", True), fields.pop("left_out", ())
    other = changed_plan(plan, fields)
    programs = Programs(argument_program(other, (), left_out), None)  # type: ignore[arg-type]
    ours = [each for each in held if isinstance(each, int)]
    enforce_always(has_seccomp=bool(listed))
    enforce(Restrictions(plan, *prepare(other, programs)[1:]), ours)
    receipt.attempt(plan, candidates, held, network_trials.network_trials(plan, None))


@pytest.mark.parametrize("call", [None, "fchmod"])
def test_a_mode_that_can_be_changed_is_noticed(call: str | None) -> None:
    """Where a rule lets something be modified, the broker judges that, and it is not tried."""
    change = not_judged(call) if call else not_judged()
    verdict = in_a_fork(lambda: confine_otherwise(plan_for([]), change), None)
    assert ("changing a mode should be refused" if call else "allowed") in verdict


@pytest.mark.needs("root", "readable-tree")
@pytest.mark.parametrize("mistake", ["every call exists", "every socket exists"])
def test_an_ordinary_user_s_filters_are_tried_too(mistake: str) -> None:
    """What the kernel refuses to everybody but root would say nothing about a filter."""
    change, message = MISTAKES[mistake]
    plan = plan_for([("connect", "192.0.2.1:80")], dials=False)
    verdict = in_a_fork(lambda: confine_otherwise(plan, change), None, NOBODY)
    assert message in verdict


@pytest.mark.needs("root", "readable-tree")
@pytest.mark.parametrize("left_out", [0, MAKING | REMOVING])
def test_the_names_of_somebody_without_a_folder_are_tried_too(
    left_out: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A service stands in /, and nothing that it can see is its own."""
    monkeypatch.chdir("/")
    plan = plan_for([("read", "/etc/hostname")], dials=False)
    verdict = in_a_fork(lambda: confine_otherwise(plan, unhandled(left_out)), None, NOBODY)
    expected = "onto itself should be refused" if left_out else "^allowed$"
    assert re.search(expected, verdict), verdict


def test_a_rule_that_only_deletes_is_tried(launch: Launch, work: Path) -> None:
    file = work.parent / "receipt.json"
    assert launch("--receipt", file, "--delete", work, "--", "true").returncode == 0
    tried = [trial for trial in json.loads(file.read_text())["tried"] if trial["class"] == "delete"]
    assert [trial["expected"] for trial in tried] == ["refused", "allowed"]


def can_ask_about_starting() -> bool:
    program = os.open("/bin/true", os.O_PATH)
    try:
        kernel.call("execveat", program, b"\0", 0, 0, ASKING)
    except OSError:
        return False
    finally:
        os.close(program)
    return True


def changed_plan(plan: Plan, fields: dict[str, object]) -> Plan:
    as_it_is = dict(zip(Plan._fields, plan, strict=True))
    return Plan(**{**as_it_is, **fields})  # type: ignore[arg-type]


@pytest.mark.needs("root")
@pytest.mark.skipif(not os.path.ismount("/dev/shm"), reason="it is no file system of its own")
def test_a_folder_at_the_root_of_a_mount_is_no_ground_to_try_on(launch: Launch) -> None:
    """Above the working folder is a mount: whoever links from there is told EXDEV, by anybody."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        at = Path(folder)
        rules = ("--create", at, "--delete", at, "--receipt", at / "receipt.json")
        result = launch(*rules, "--", "true", cwd=at)
        assert (result.returncode, result.stderr) == (0, "")
        document = json.loads((at / "receipt.json").read_text())
    tried = {(trial["class"], trial["expected"]) for trial in document["tried"]}
    assert tried >= {("create", "refused"), ("delete", "refused")}
