"""Confined children for the tests: each runs in a fork and counts only by what it wrote."""

from __future__ import annotations

import ctypes
import errno
import functools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pytest
from host_features import require
from kernel.folder_acts import lay_out
from kernel.learned import environment
from kernel.people import LAUNCHER

import democrai_osguard_launcher
from democrai_osguard.approvals.opening import open_service
from democrai_osguard_launcher.enforcement import assemble, enforce, enforce_always, prepare
from democrai_osguard_launcher.facts import gather
from democrai_osguard_launcher.plan import make_plan
from democrai_osguard_launcher.rules import make_rule
from democrai_osguard_launcher.supervision import split

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from kernel.learned import Again, Learned

    from democrai_osguard.approvals.service import ApprovalService
    from democrai_osguard_launcher.plan import Plan
    from democrai_osguard_launcher.supervision import Companion

    Action = Callable[[], object]
    Grant = tuple[str, str | Path]

PACKAGES = Path(democrai_osguard_launcher.__file__).parent.parent
PR_SET_DUMPABLE = 4
prctl = ctypes.CDLL(None).prctl
NETWORK = {"connect", "receive", "send"}


def plan_for(grants: Iterable[Grant], *, dials: bool = True) -> Plan:
    rules = [
        make_rule(
            "network" if operation in NETWORK else "filesystem", operation, str(target), at="test"
        )
        for operation, target in grants
    ]
    return make_plan(rules, gather(rules, None, os.environ.get("PATH")), dials=dials)


def rules(*items: tuple[str, str, str]) -> str:
    """Return rules as the variable has them."""
    keys = ("resource_type", "operation", "target")
    return json.dumps([dict(zip(keys, item, strict=True)) for item in items])


def in_a_fork(
    action: Action, plan: Plan | None, uid: int | None = None, companion: Companion | None = None
) -> str:
    """Run the action in a fork, under the plan or free; return what it wrote about itself."""
    if plan is not None and uid:  # it reads the filter, and loads modules, as that user
        require("readable-tree")
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        verdict = "crashed"
        try:
            os.dup2(writer, 1)  # the enforcement closes what is above 2
            if uid is not None:
                become(uid)
            if plan is not None:
                enforce_always(has_seccomp=plan.seccomp)
                supervised = bool(plan.brokered or companion)
                also = companion.waiting if companion else None
                programs = assemble(plan, supervised=supervised, also=also)
                channel = split(plan, companion) if supervised else None
                enforce(prepare(plan, programs), channel=channel)
            verdict = _outcome(action)
        finally:
            os.write(1, verdict.encode())
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        verdict = pipe.read()
    status = os.waitpid(child, 0)[1]
    return verdict or f"died: {os.waitstatus_to_exitcode(status)}"


def become(uid: int) -> None:
    """Go on as another user, for good."""
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    prctl(PR_SET_DUMPABLE, 1)  # becoming somebody else made us unreadable


def _outcome(action: Action) -> str:
    try:
        action()
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, f"OSError: {error}")
    except Exception as error:  # noqa: BLE001 - the child must speak
        return f"{type(error).__name__}: {error}"
    return "allowed"


class Confined(Protocol):
    def __call__(self, action: Action, *grants: Grant, uid: int | None = None) -> str: ...


class Launch(Protocol):
    def __call__(
        self, *arguments: str | Path, access: str | None = None, cwd: Path | None = None,
        keep: Sequence[int] = (), environment: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]: ...  # fmt: skip


class Free(Protocol):
    def __call__(self, action: Action, uid: int | None = None) -> str: ...


@pytest.fixture
def free() -> Free:
    """Return the control: the same action in a fork without any restriction."""
    return lambda action, uid=None: in_a_fork(action, None, uid)


@pytest.fixture
def confined() -> Confined:
    """Return a function that runs an action under grants of (operation, target)."""

    def run(action: Action, *grants: Grant, uid: int | None = None) -> str:
        return in_a_fork(action, plan_for(grants), uid)

    return run


@pytest.fixture
def launch() -> Launch:
    """Return a function that runs `democrai-launch` with these arguments."""

    def run(
        *arguments: str | Path, access: str | None = None, cwd: Path | None = None,
        keep: Sequence[int] = (), environment: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:  # fmt: skip
        kept = {name: value for name, value in os.environ.items() if "DEMOCRAI" not in name}
        # Not the helper of this machine, should it have one.
        kept |= {"PYTHONPATH": str(PACKAGES), "DEMOCRAI_OS_HELPER_SOCKET": "/nonexistent/helper"}
        kept |= environment or {}
        if access is not None:
            kept["DEMOCRAI_ACCESS"] = access
        command = [sys.executable, "-m", "democrai_osguard_launcher", *map(str, arguments)]
        return subprocess.run(
            command, cwd=cwd, env=kept, capture_output=True, text=True, timeout=600,
            check=False, pass_fds=keep,
        )  # fmt: skip

    return run


@pytest.fixture
def folder(tmp_path: Path) -> Callable[[str], Path]:
    """Return what lays out a folder for the acts, under a name."""
    return lambda name: lay_out(tmp_path / name)


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ApprovalService]:
    """Open an approval store of the test's own, which every process finds."""
    monkeypatch.setenv("DEMOCRAI_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("DEMOCRAI_SESSION_KEY", "a session")
    own = open_service()
    yield own
    own.close()


class Start(Protocol):
    def __call__(
        self, *command: str, options: Sequence[str] = (), cwd: Path | None = None
    ) -> subprocess.Popen[str]: ...


@pytest.fixture
def supervised(service: ApprovalService) -> Iterator[Start]:
    """Return a function that starts a supervised command; what it asks comes to the store."""
    started: list[subprocess.Popen[str]] = []

    def run(
        *command: str, options: Sequence[str] = (), cwd: Path | None = None
    ) -> subprocess.Popen[str]:
        words = [*LAUNCHER, "--supervised", "--subject", "module:notes", *options, "--", *command]
        process = subprocess.Popen(
            words, cwd=cwd, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            start_new_session=True,  # so that no question comes to the terminal of the tests
        )  # fmt: skip
        started.append(process)
        return process

    assert service.list_requests() == []
    yield run
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """Return a folder with a file and an empty folder in it."""
    folder = tmp_path / "work"
    (folder / "empty").mkdir(parents=True)
    (folder / "file").write_text("content\n")
    return folder


@pytest.fixture
def start(supervised: Start, work: Path) -> Start:
    """Return a function that starts a supervised command in its folder."""
    return functools.partial(supervised, cwd=work)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Return a home with a folder for what is temporary; beside it is what nobody may read."""
    folder = tmp_path / "home"
    (folder / "tmp").mkdir(parents=True)
    (tmp_path / "beside").write_text("nobody asked for this")
    return folder


@pytest.fixture
def again(home: Path) -> Again:
    """Return a function that runs a command under what was learned."""

    def run(learned: Learned, *command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
        # Nobody holds addresses here, which is less than the launcher asks for by default.
        options = ["--best-effort", "--manifest", str(learned.manifest), "--"]
        launcher = [sys.executable, "-I", "-m", "democrai_osguard_launcher", *options]
        done, beside = (
            subprocess.run(
                [*launcher, *map(str, words)],
                cwd=cwd,
                env=environment(home),
                capture_output=True,
                text=True,
                timeout=600,
                check=False,
            )
            for words in (command, ("cat", home.parent / "beside"))
        )
        assert (beside.stdout, beside.returncode) == ("", 1), beside.stderr
        return done

    return run
