"""A command started by steps is confined exactly as one that was forked, and no step is idle."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from kernel.folder_acts import ACTS, METADATA, lay_out
from kernel.test_escapes import REFUSED
from kernel.test_warm import request
from kernel.world import new_world

from democrai_osguard_launcher import enforcement, steps, warm
from democrai_osguard_launcher.warm_client import LaunchFailed, WarmLauncher

if TYPE_CHECKING:
    from collections.abc import Callable

    from democrai_osguard_launcher.sibling import Sibling

    Change = Callable[[Sibling], None]

pytestmark = pytest.mark.needs("landlock", "landlock-truncate", "landlock-scopes", "seccomp")

TESTS = Path(__file__).parent.parent
WITNESS = (sys.executable, "-m", "kernel.witness")
NEEDED: tuple[str | Path, ...] = (
    TESTS,
    TESTS.parent / "launcher",
    os.path.realpath("/usr/bin/true"),
    *sys.path,
)
NO_WAY_OUT = {
    "way out: run a program through the loader",  # here it may be read
    "way out: load a second listener",  # here there is no broker that it would shadow
}
WAYS = {"steps": (), "fork": ("--without-steps",)}
CALLS = (
    {"getpid": 39, "exit_group": 231}
    if os.uname().machine == "x86_64"
    else {"getpid": 172, "exit_group": 94}
)


def environment() -> dict[str, str]:
    # Not the folders of single tests: a module there may have the name of one of the library.
    others = [path for path in sys.path if not path.startswith(str(TESTS))]
    return {"PATH": os.environ["PATH"], "PYTHONPATH": ":".join((str(TESTS), *others))}


def asked_of_the_witness(asked: list[object], folder: Path, **fields: object) -> dict[str, object]:
    access = tuple(("read", path) for path in (*NEEDED, folder) if os.path.exists(path))
    said = {"folder": str(folder), "environment": environment(), **fields}
    return request(*WITNESS, json.dumps(asked), access=access, **said)


def said_by(launcher: WarmLauncher, asked: dict[str, object], **kept: int) -> dict[str, Any]:
    reader, writer = os.pipe()
    try:
        keep = {int(name[1:]): number for name, number in kept.items()}
        pid = launcher.launch(asked, (0, writer, 2), keep=keep)
    finally:
        os.close(writer)
    with os.fdopen(reader) as pipe:
        text = pipe.read()
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    said: dict[str, Any] = json.loads(text)
    return said


def folders_at(base: Path) -> Path:
    for number in range(len(ACTS) + len(METADATA)):
        lay_out(base / str(number))
    return base


def test_it_is_confined_as_a_fork_is(tmp_path: Path) -> None:
    folders = folders_at(tmp_path / "confined")
    with contextlib.ExitStack() as ends:
        places: list[object] = []
        if os.geteuid() == 0:
            world = ends.enter_context(new_world(0))
            places = [str(each) if isinstance(each, Path) else each for each in world]
        asked = asked_of_the_witness([str(folders), places], tmp_path, limits={"files": 900})
        said = {}
        for way, options in WAYS.items():
            launcher = WarmLauncher(python=(sys.executable,), options=options)
            ends.callback(launcher.close)
            with open("/dev/null", encoding="ascii") as kept:
                said[way] = said_by(launcher, asked, _7=kept.fileno(), _300=kept.fileno())
    assert said["steps"] == said["fork"]
    found, tried = said["steps"]["found"], said["steps"]["tried"]
    assert found["descriptors"] == [[7, True], [300, True]]
    assert found["parent"] == os.getpid()
    assert "Umask:\t0077" in found["status"]
    for name, (_, needed) in ACTS.items():
        assert tried[name] == ("allowed" if needed <= {"read"} else "EACCES"), name
    ways_out = {name: verdict for name, verdict in tried.items() if name.startswith("way out")}
    assert {name for name, verdict in ways_out.items() if verdict not in REFUSED} <= NO_WAY_OUT
    assert len(ways_out) > 100 or os.geteuid() != 0


def test_the_same_acts_work_unconfined(tmp_path: Path) -> None:
    folders = folders_at(tmp_path / "free")
    words = [*WITNESS, json.dumps([str(folders), []])]
    free = subprocess.run(words, env=environment(), stdout=subprocess.PIPE, text=True, check=True)
    tried = json.loads(free.stdout)["tried"]
    assert {name: tried[name] for name in ACTS} == dict.fromkeys(ACTS, "allowed")


def test_the_next_launch_does_not_wait_for_the_command() -> None:
    launcher = WarmLauncher(python=(sys.executable,))
    waiting, writer = os.pipe()
    pid = launcher.launch(request("cat"), (waiting, 1, 2))
    os.close(waiting)
    os.waitpid(launcher.launch(request("true")), 0)
    assert os.waitpid(pid, os.WNOHANG) == (0, 0)
    os.close(writer)
    assert os.waitpid(pid, 0)[1] == 0
    launcher.close()


# The same words for both, since only the same request is remembered: a pid comes from outside.
PRYING = "read pid; read line < /proc/${pid:-self}/stat && echo seen || echo refused"


def pry(launcher: WarmLauncher, pid: str = "") -> str:
    given, giver = os.pipe()
    reader, writer = os.pipe()
    child = launcher.launch(request("sh", "-c", PRYING), (given, writer, writer))
    os.write(giver, f"{pid}\n".encode())
    for each in (given, giver, writer):
        os.close(each)
    with os.fdopen(reader) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    return text.splitlines()[-1]


@pytest.mark.parametrize("options", WAYS.values(), ids=WAYS)
def test_commands_of_one_request_do_not_see_each_other(options: tuple[str, ...]) -> None:
    """The second of them could, if it entered what the first one has entered."""
    launcher = WarmLauncher(python=(sys.executable,), options=options)
    assert pry(launcher) == "seen"  # its own folder
    given, giver = os.pipe()
    first = launcher.launch(request("sh", "-c", PRYING), (given, 1, 2))
    verdicts = [pry(launcher, str(first)) for _ in range(2)]
    for each in (given, giver):
        os.close(each)
    os.waitpid(first, 0)
    launcher.close()
    assert verdicts == ["refused", "refused"]


REMOUNTING = """
import os, subprocess, sys
from kernel.test_warm import output_of
from democrai_osguard_launcher.warm_client import WarmLauncher

place, launcher = sys.argv[1], WarmLauncher(python=(sys.executable,))
for number in range(6):
    subprocess.run(["mount", "-t", "tmpfs", "none", place], check=True)
    open(place + "/file", "w").write("seen")
    said = output_of(launcher, "cat", place + "/file", access=(("read", place),))
    assert said == ("seen", 0), (number, said)
    subprocess.run(["umount", place], check=True)
launcher.close()
"""


@pytest.mark.needs("root")
def test_a_file_system_that_was_away_is_opened_again(tmp_path: Path) -> None:
    words = ["unshare", "--mount", sys.executable, "-c", REMOUNTING, str(tmp_path)]
    subprocess.run(words, env=environment(), check=True)


class Started:
    """What came of a job that somebody else started for us: the child is ours all the same."""

    def __init__(self, asked: dict[str, object], change: Change | None, code: bool = True) -> None:
        text = json.dumps({"keep": [], **asked}).encode()
        news, writer = os.pipe()
        output, outside = os.pipe()
        kitchen = os.fork()
        if kitchen == 0:
            _cook(text, change, code, (0, outside, 2), writer)
        os.close(writer)
        os.close(outside)
        with os.fdopen(news) as pipe:
            self.way, self.pid, self.complaint = json.loads(pipe.read())
        with os.fdopen(output) as pipe:
            self.output = pipe.read()
        os.waitpid(kitchen, 0)
        if self.pid:
            self.code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def _cook(
    text: bytes, change: Change | None, code: bool, descriptors: tuple[int, ...], news: int
) -> None:
    """Do what the warm launcher does, but for what the change says."""
    said: tuple[str, int, str] = ("crashed", 0, "")
    try:
        enforcement.enforce_always(has_seccomp=True)
        job = warm.Kitchen(steps.machine_code() if code else None).make_job(text)
        said = "fork", 0, ""
        if job.by_steps is not None:
            sibling, _ = job.by_steps
            if change is not None:
                change(sibling)
            pid, complaint = sibling.start(descriptors), ""
            try:
                sibling.check()
            except Exception as error:  # noqa: BLE001 - it must be told
                complaint = f"{type(error).__name__}: {error}"
            said = "steps", pid, complaint
    except Exception as error:  # noqa: BLE001 - likewise
        said = "crashed", 0, repr(error)
    finally:
        os.write(news, json.dumps(said).encode())
        os._exit(0)


def test_it_is_the_steps_that_are_tested() -> None:
    started = Started(request("echo", "ran"), None)
    assert (started.way, started.complaint, started.output) == ("steps", "", "ran\n")


@pytest.mark.parametrize(
    "fields",
    [
        {"access": [{"resource_type": "filesystem", "operation": "create", "target": "/tmp"}]},
        {
            "access": [{"resource_type": "network", "operation": "send", "target": "192.0.2.1:1"}],
            "require": "none",
        },
        {"keep": [2]},
    ],
    ids=["brokered", "network", "a place that is taken"],
)
def test_what_steps_cannot_do_is_forked(fields: dict[str, object]) -> None:
    assert Started({**request("true"), **fields}, None).way == "fork"


def test_without_machine_code_everything_is_forked() -> None:
    assert Started(request("true"), None, code=False).way == "fork"


def test_machine_code_that_is_not_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "__file__", "/no/such/folder/steps.py")
    assert steps.machine_code() is None


def test_a_command_that_became_unstartable_is_said() -> None:
    def break_it(sibling: Sibling) -> None:
        sibling._steps.set_argument(sibling._exec, 0)  # noqa: SLF001 - no path at all

    started = Started(request("true"), break_it)
    assert (started.complaint, started.code) == ("NotExecutable: true: Bad address", 125)


def idle(name: str, nth: int = 0) -> Change:
    """Have a step of this name do nothing, as if it had been forgotten."""

    def change(sibling: Sibling) -> None:
        numbers = [step for step, each in sibling._names.items() if each == name]  # noqa: SLF001
        sibling._steps._words[2 + 12 * numbers[nth]] = CALLS["getpid"]  # noqa: SLF001

    return change


LIMITED = "--limit files=64"
# Which step is left out, and what the receipt says; None where only the witness sees it.
FORGOTTEN: dict[str, tuple[Change, str | None]] = {
    "Landlock": (
        idle("landlock_restrict_self"), "listing / should be refused, and was allowed"
    ),
    "seccomp": (idle("seccomp"), "a netlink socket should be refused"),
    "own folder": (idle("landlock_add_rule"), None),
    "umask": (idle("umask"), None),
    "core dumps": (idle("core dumps"), None),
    "limit": (idle(LIMITED), None),
    "signal mask": (idle("signals", -1), None),
    "closing": (idle("descriptors", -1), None),
    "standard output": (idle("descriptors", 4), None),
    "folder": (idle("/"), None),
}  # fmt: skip


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("place")


@pytest.fixture(scope="module")
def unchanged(place: Path) -> tuple[str, str, int]:
    """Return what the witness says when no step was forgotten: the same each time."""
    first, second = confessed(place, None), confessed(place, None)
    assert first == second
    assert (first[0], first[2]) == ("", 0)
    return first


@pytest.mark.parametrize("forgotten", FORGOTTEN)
def test_a_step_that_is_forgotten_is_noticed(
    place: Path, unchanged: tuple[str, str, int], forgotten: str
) -> None:
    change, complaint = FORGOTTEN[forgotten]
    said = confessed(place, change)
    if complaint:
        assert re.match(f"NotEnforced: refused: {complaint}", said[0])
        assert said[1:] == ("", 125)
    else:
        assert said != unchanged


def confessed(folder: Path, change: Change | None) -> tuple[str, str, int]:
    asked = asked_of_the_witness([], folder, limits={"files": 64})
    started = Started({**asked, "folder": "/"}, change)
    return started.complaint, started.output, started.code


def test_a_root_that_cannot_be_added_refuses(tmp_path: Path) -> None:
    """A ruleset that was not made is not entered, and then nothing runs."""

    def break_it(sibling: Sibling) -> None:
        numbers = [n for n, each in sibling._names.items() if each == "landlock_restrict_self"]  # noqa: SLF001
        sibling._steps.set_argument(numbers[0], 511)  # noqa: SLF001 - no ruleset

    started = Started(request("echo", "ran", access=(("read", tmp_path),)), break_it)
    assert (started.output, started.code) == ("", 125)
    assert started.complaint == "NotEnforced: landlock_restrict_self: Bad file descriptor"


def test_a_child_that_is_ended_before_exec_is_no_command() -> None:
    def end_it(sibling: Sibling) -> None:
        numbers = [n for n, each in sibling._names.items() if each == "umask"]  # noqa: SLF001
        sibling._steps._words[2 + 12 * numbers[0]] = CALLS["exit_group"]  # noqa: SLF001

    started = Started(request("echo", "ran"), end_it)
    assert (started.complaint, started.output) == ("NotEnforced: umask: it ended there", "")


def children() -> set[str]:
    """Return the processes of this one, those included that have ended."""
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it is gone already
            parent = (folder / "stat").read_text().rpartition(")")[2].split()[1]
            found |= {folder.name} if int(parent) == os.getpid() else set()
    return found


def test_what_fails_leaves_no_process_behind(tmp_path: Path) -> None:
    before = children()
    launcher = WarmLauncher(python=(sys.executable,))
    with pytest.raises(LaunchFailed, match="No such file") as failure:
        launcher.launch(request("true", folder=str(tmp_path / "missing")))
    assert failure.value.exit_code == 125
    assert len(children() - before) == 1  # the launcher itself
    launcher.close()
    assert children() <= before
