"""One act, one judgement: what a wrapper has judged the hook lets pass, and nobody asks twice."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from typing import TYPE_CHECKING, NamedTuple

import pytest
from guard.confined import confined
from guard.judgements import HOOK, WRAPPER, Judgements

from democrai_osguard.access import AccessRequest, Rule
from democrai_osguard.guard import process_guard_context, use_approvals

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from democrai_osguard.access import Subject

_TRUE = os.path.realpath("/bin/true")


class Place(NamedTuple):
    """What the acts reach."""

    folder: str
    port: int

    @property
    def file(self) -> str:
        return f"{self.folder}/file"

    @property
    def address(self) -> tuple[str, int]:
        return "127.0.0.1", self.port

    @property
    def rules(self) -> list[Rule]:
        words = [
            ("filesystem", "read", self.folder),
            ("filesystem", "execute", _TRUE),
            ("network", "connect", "127.0.0.1"),
        ]
        return [Rule(*rule) for rule in words]  # type: ignore[arg-type] # Rule checks


class Originals:
    """The functions as they were before the guard was there, where it does not replace them."""

    def __init__(self) -> None:
        self.open, self.os_open, self.scandir = open, os.open, os.scandir
        self.posix_spawn = os.posix_spawn
        self.connect = socket.socket.__mro__[1].connect  # type: ignore[attr-defined] # the C class


class Act(NamedTuple):
    """An act through its wrapper, the same past it, and what is judged."""

    through: Callable[[Place], object]
    past: Callable[[Originals, Place], object]
    judged: Callable[[Place], tuple[str, str]]


def _connect(place: Place) -> None:
    with socket.socket() as client:  # closed, whatever is raised
        client.connect(place.address)


def _past_connect(originals: Originals, place: Place) -> None:
    with socket.socket() as client:
        originals.connect(client, place.address)


def _past_spawn(originals: Originals, _place: Place) -> None:
    os.waitpid(originals.posix_spawn(_TRUE, ["true"], {}), 0)


def _reads(place: Place) -> tuple[str, str]:
    return "read", place.file


ACTS = {
    "open": Act(
        lambda place: open(place.file, encoding="utf-8").close(),
        lambda originals, place: originals.open(place.file, encoding="utf-8").close(),
        _reads,
    ),
    "os.open": Act(
        lambda place: os.close(os.open(place.file, os.O_RDONLY)),
        lambda originals, place: os.close(originals.os_open(place.file, os.O_RDONLY)),
        _reads,
    ),
    "os.scandir": Act(
        lambda place: list(os.scandir(place.folder)),
        lambda originals, place: list(originals.scandir(place.folder)),
        lambda place: ("read", place.folder),
    ),
    "subprocess": Act(
        lambda _place: subprocess.run([_TRUE], check=True),
        _past_spawn,
        lambda _place: ("execute", _TRUE),
    ),
    "connect": Act(
        _connect,
        _past_connect,
        lambda place: ("connect", f"127.0.0.1:{place.port}"),
    ),
}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    monkeypatch.setenv("DEMOCRAI_TEMP_DIR", str(tmp_path / "temp"))
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").write_text("x")
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield Place(str(tmp_path / "folder"), server.getsockname()[1])


@pytest.mark.parametrize("name", ACTS)
def test_the_hook_lets_pass_what_a_wrapper_has_judged(name: str, place: Place) -> None:
    act = ACTS[name]

    def nets(perform: Callable[[Originals], object]) -> object:
        def check() -> object:
            originals, judgements = Originals(), Judgements()
            judgements.install()
            with process_guard_context("m", "module", place.rules, allow_subprocess=True):
                perform(originals)
            found = judgements.of(*act.judged(place))
            return [sorted(set(found)), found.count(HOOK)]

        return confined(check)

    assert nets(lambda _: act.through(place)) == [[WRAPPER], 0]
    assert nets(lambda originals: act.past(originals, place)) == [[HOOK], 1]  # the control


class Service:
    """Denies nothing, and writes down what it is asked about."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []
        self.broken = False

    def denial(self, request: AccessRequest) -> Rule | None:
        self.asked.append((str(request.operation), request.target))
        if self.broken:
            raise OSError("the database is gone")
        return None

    def session_approval(self, _request: AccessRequest) -> Rule | None:
        return None

    def permanent_approval(self, _request: AccessRequest) -> Rule | None:
        return None

    def refused(self, request: AccessRequest, chain: tuple[Subject, ...]) -> None:
        """Note nothing."""


class Clock:
    """Stands still until it is told to go on: a guard forgets answers as time goes by."""

    def __init__(self) -> None:
        self.now = time.monotonic()
        time.monotonic = lambda: self.now  # the guard takes it when it is installed

    def pass_by(self) -> None:
        self.now += 60


@pytest.mark.parametrize("name", ACTS)
def test_the_service_is_asked_once_per_identity_and_activation(name: str, place: Place) -> None:
    act = ACTS[name]

    def check() -> object:
        clock, service = Clock(), Service()
        use_approvals(service)
        counts = []

        def count() -> None:
            act.through(place)
            counts.append(
                service.asked.count((operation, target.replace("127.0.0.1", "localhost")))
            )

        operation, target = act.judged(place)
        with process_guard_context("m", "module", place.rules, allow_subprocess=True):
            count()
            count()
            clock.pass_by()  # what people decided meanwhile counts
            count()
        with process_guard_context("m", "module", place.rules, allow_subprocess=True):
            count()
            count()
        return counts

    assert confined(check) == [1, 1, 2, 3, 3]


def test_each_operation_on_one_target_is_a_question_of_its_own(place: Place) -> None:
    def check() -> object:
        Clock()
        service = Service()
        use_approvals(service)
        with process_guard_context("m", "module", allowed_paths=[place.folder]):
            for _ in range(3):
                os.close(os.open(place.file, os.O_RDWR))
        return sorted(operation for operation, target in service.asked if target == place.file)

    assert confined(check) == ["modify", "read"]


@pytest.mark.parametrize("name", ACTS)
def test_a_service_that_fails_is_no_denial_and_is_asked_again(
    name: str, place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    act = ACTS[name]

    def check() -> object:
        Clock()
        service = Service()
        use_approvals(service)
        with process_guard_context("m", "module", place.rules, allow_subprocess=True):
            service.broken = True
            try:
                act.through(place)
            except RuntimeError as error:
                found = [type(error).__name__, getattr(error, "code", ""), str(error)]
                found.append(isinstance(error, PermissionError))
            else:
                found = ["it went through"]
            service.broken = False
            act.through(place)  # nothing of the failure is remembered
        target = act.judged(place)[1].replace("127.0.0.1", "localhost")
        said = [r for r in caplog.records if f" {target}: " in r.getMessage()]
        levels = [record.levelname for record in said]
        return [*found, levels, "the database is gone" in caplog.text]

    code = "sandbox_external_access_check_failed"
    assert confined(check) == ["ApprovalCheckFailed", code, code, False, ["ERROR"], True]
