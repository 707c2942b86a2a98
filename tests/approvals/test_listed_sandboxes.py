"""Which sandboxes are said to run: what a process says of itself is never taken for more."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import pytest
from host_features import lack

from democrai_osguard.ui.sandboxes import running
from democrai_osguard_helper import protocol
from democrai_osguard_helper.protocol import Listed, Listing, Report, Subject

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator
    from pathlib import Path

    from democrai_osguard.ui.sandboxes import Sandbox

PATIENCE = 60
SLEEP = "import time; print('up', flush=True); time.sleep(600)"
CLAIM = {"DEMOCRAI_NETWORK_SUBJECT": "liar", "DEMOCRAI_NETWORK_SUBJECT_KIND": "tool"}


@pytest.fixture(autouse=True)
def _no_helper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEMOCRAI_OS_HELPER_SOCKET", str(tmp_path / "none.sock"))


@contextlib.contextmanager
def process(*command: str, claim: dict[str, str] | None = None) -> Iterator[subprocess.Popen[str]]:
    """Run a command that says when it is up, with an environment that may claim things."""
    made = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, **(claim or {})}
    )
    try:
        assert made.stdout is not None
        assert made.stdout.readline() == "up\n"
        yield made
    finally:
        made.kill()
        made.communicate()


def listed(subject: str) -> list[Sandbox]:
    return [each for each in running() if each.subject == subject]


def test_a_process_that_only_says_so_is_called_that() -> None:
    with process(sys.executable, "-c", SLEEP, claim=CLAIM) as liar:
        (found,) = listed("tool:liar")
    assert (found.pid, found.known_from) == (liar.pid, "itself")
    assert listed("tool:liar") == []


def test_no_name_of_a_process_makes_it_confined() -> None:
    name = "open('/proc/self/comm', 'w').write('\\nNoNewPrivs:\\t1')"
    with process(sys.executable, "-c", f"{name}; {SLEEP}", claim=CLAIM) as liar:
        with open(f"/proc/{liar.pid}/comm", encoding="utf-8") as file:
            assert "\nNoNewPrivs:\t1" in file.read()  # it did try
        (found,) = listed("tool:liar")
    assert found.known_from == "itself"


LAUNCH = (
    *(sys.executable, "-I", "-m", "democrai_osguard_launcher", "--subject", "tool:honest"),
    *("--read", "/", "--execute", "/", "--"),
)


@pytest.mark.needs("landlock", "seccomp")
def test_a_launched_process_is_confined_by_the_kernel_s_word() -> None:
    with process(*LAUNCH, sys.executable, "-I", "-c", SLEEP):
        (found,) = listed("tool:honest")
    assert found.known_from == "kernel"
    assert sys.executable in found.command


@pytest.mark.needs("landlock", "seccomp")
def test_a_launched_process_under_another_name_is_not_vouched_for() -> None:
    lie = f"import os; os.execve({sys.executable!r}, ['p', '-I', '-c', {SLEEP!r}], {CLAIM!r})"
    with process(*LAUNCH, sys.executable, "-I", "-c", lie):
        (found,) = listed("tool:liar")
    assert found.known_from == "kernel"  # it is confined; nobody but itself says as whom


class FakeHelper:
    """A helper that says of one cgroup whose it is."""

    def __init__(self, path: str, instance: str, sandbox: str) -> None:
        import socket  # noqa: PLC0415 - only here

        self._listing = Listing(
            sandbox, os.geteuid(), Subject("tool", "honest"), session=None, since=0, refusals=0,
            endpoints=0, names=(), layers=("bpf",), populated=True, state="held", follows=None,
        )  # fmt: skip
        self._instance = instance
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(path)
        self._listener.listen()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        import socket  # noqa: PLC0415 - only here

        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                stream, _ = self._listener.accept()
            except OSError:
                return
            with stream:
                self._answer(stream)

    def _answer(self, stream: socket.socket) -> None:
        while header := stream.recv(protocol.HEADER):
            call = stream.recv(protocol.frame_length(header))
            report = Report(1, self._instance, (), "pidfd", 1, "", 0, 0)
            reply = report if b"status" in call else Listed((self._listing,))
            stream.sendall(protocol.frame(reply))


@pytest.mark.needs("root")
@pytest.mark.parametrize("place", ["root", "below"])
def test_the_helper_s_word_is_about_its_own_cgroups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    instance, sandbox = f"x{os.getpid()}", "0123456789ab"
    top = cgroup_mount() if place == "root" else f"{cgroup_mount()}/osguard-liar-{os.getpid()}"
    box = f"{top}/democrai-osguard-{instance}/{sandbox}"
    monkeypatch.setenv("DEMOCRAI_OS_HELPER_SOCKET", str(tmp_path / "helper.sock"))
    helper = FakeHelper(str(tmp_path / "helper.sock"), instance, sandbox)
    os.makedirs(box)
    try:
        with process(sys.executable, "-c", SLEEP, claim=CLAIM) as liar:
            with open(f"{box}/cgroup.procs", "w", encoding="ascii") as file:
                file.write(str(liar.pid))
            found = [(each.subject, each.known_from) for each in running() if each.pid == liar.pid]
    finally:
        helper.close()
        remove(box, cgroup_mount())
    # Inside, its claim to be another does not count; elsewhere, the cgroup's name does not.
    honest, liars = ("tool:honest", "helper"), ("tool:liar", "itself")
    assert found == [honest if place == "root" else liars]


def cgroup_mount() -> str:
    from democrai_osguard.enforcement.cgroups import read_cgroup_layout  # noqa: PLC0415 - only here

    mount = read_cgroup_layout().mount
    if mount is None or not os.access(mount, os.W_OK):
        lack("cgroup2")
    return mount


def remove(box: str, top: str) -> None:
    """Remove a cgroup and those above it that the test made, once the kernel lets it."""
    until = time.monotonic() + PATIENCE
    while box != top:
        try:
            os.rmdir(box)
        except OSError:
            assert time.monotonic() < until
            time.sleep(0.01)
        else:
            box = os.path.dirname(box)


def test_a_helper_that_does_not_answer_leaves_claims(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import socket  # noqa: PLC0415 - only here

    monkeypatch.setattr("democrai_osguard.ui.sandboxes._PATIENCE", 0.05)
    monkeypatch.setenv("DEMOCRAI_OS_HELPER_SOCKET", str(tmp_path / "mute.sock"))
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as mute:
        mute.bind(str(tmp_path / "mute.sock"))
        mute.listen()
        with process(sys.executable, "-c", SLEEP, claim=CLAIM):
            assert [each.known_from for each in listed("tool:liar")] == ["itself"]
