"""The warm launcher: commands are children of the caller, and as confined as cold ones."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import pytest

from democrai_osguard_launcher.warm_client import LaunchFailed, WarmLauncher

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.needs("landlock", "seccomp")


@pytest.fixture(scope="module")
def warm() -> Iterator[WarmLauncher]:
    launcher = WarmLauncher(python=(sys.executable,))
    yield launcher
    launcher.close()


def request(
    *command: str | Path, access: tuple[tuple[str, str | Path], ...] = (), **fields: object
) -> dict[str, object]:
    rules = [
        {"resource_type": "filesystem", "operation": operation, "target": str(target)}
        for operation, target in access
    ]
    return {
        "command": [str(word) for word in command], "environment": {"PATH": os.environ["PATH"]},
        "folder": None, "access": rules, "subject": None, "require": "full", "limits": {},
        **fields,
    }  # fmt: skip


def output_of(
    warm: WarmLauncher, *command: str | Path, access: tuple[tuple[str, str | Path], ...] = ()
) -> tuple[str, int]:
    reader, writer = os.pipe()
    try:
        pid = warm.launch(request(*command, access=access), (0, writer, 2))
    finally:
        os.close(writer)
        pipe = os.fdopen(reader)
    with pipe:
        text = pipe.read()
    return text, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_a_command_is_a_child_of_the_caller(warm: WarmLauncher) -> None:
    text, code = output_of(warm, "sh", "-c", "echo $PPID; exit 7")
    assert (int(text), code) == (os.getpid(), 7)


def test_it_is_confined(warm: WarmLauncher, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("seen")
    assert output_of(warm, "cat", tmp_path / "file", access=(("read", tmp_path),)) == ("seen", 0)
    assert output_of(warm, "cat", tmp_path / "file") == ("", 1)
    status = output_of(warm, "cat", "/proc/self/status")[0]
    assert "NoNewPrivs:\t1" in status
    assert "Seccomp:\t2" in status


def test_what_must_be_brokered_is_brokered(warm: WarmLauncher, tmp_path: Path) -> None:
    script = f"echo new > {tmp_path}/new; echo more >> {tmp_path}/new || echo refused"
    text, code = output_of(
        warm, "sh", "-c", f"({script}) 2>/dev/null", access=(("create", tmp_path),)
    )
    assert (text, code) == ("refused\n", 0)
    assert (tmp_path / "new").read_text() == "new\n"


def test_folder_environment_limits_and_descriptors_arrive(
    warm: WarmLauncher, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("kept")
    kept = os.open(tmp_path / "file", os.O_RDONLY)
    reader, writer = os.pipe()
    asked = request(
        "bash", "-c", "pwd; echo $NAME; ulimit -n; cat <&7; ls /proc/$$/fd | wc -l",
        folder=str(tmp_path), environment={"PATH": os.environ["PATH"], "NAME": "value"},
        limits={"files": 64},
        access=(("execute", os.path.realpath("/bin/cat")),),
    )  # fmt: skip
    pid = warm.launch(asked, (0, writer, 2), keep={7: kept})
    os.close(writer)
    os.close(kept)
    with os.fdopen(reader) as pipe:
        text = pipe.read()
    os.waitpid(pid, 0)
    assert text.splitlines()[:4] == [str(tmp_path), "value", "64", "kept"]


FAILURES: dict[str, tuple[dict[str, object], int]] = {
    "not found": ({"command": ["no-such-command"]}, 127),
    "not executable": ({"command": ["/etc/passwd"]}, 126),
    "unknown operation": (
        {"access": [{"resource_type": "filesystem", "operation": "write", "target": "/"}]},
        64,
    ),
    "unknown field": ({"shell": True}, 64),
    "no folder": ({"folder": "/no/such/folder"}, 125),
    "network": (
        {"access": [{"resource_type": "network", "operation": "send", "target": "192.0.2.1:1"}]},
        125,
    ),
    "empty command": ({"command": []}, 64),
    "unknown level": ({"require": "most"}, 64),
    "unknown limit": ({"limits": {"nothing": 1}}, 64),
}


@pytest.mark.parametrize("name", FAILURES)
def test_what_cannot_be_started_is_said_with_its_code(warm: WarmLauncher, name: str) -> None:
    fields, code = FAILURES[name]
    with pytest.raises(LaunchFailed) as failure:
        warm.launch({**request("true"), **fields})
    assert failure.value.exit_code == code
    assert output_of(warm, "true") == ("", 0)


def test_many_threads_launch_at_once(warm: WarmLauncher) -> None:
    codes: list[int] = []

    def work(code: int) -> None:
        codes.append(output_of(warm, "sh", "-c", f"exit {code}")[1])

    threads = [threading.Thread(target=work, args=(code,)) for code in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(codes) == list(range(12))


def test_it_outlives_the_thread_that_started_it() -> None:
    launcher = WarmLauncher(python=(sys.executable,))
    first = threading.Thread(target=lambda: output_of(launcher, "true"))
    first.start()
    first.join()
    time.sleep(0.05)
    assert output_of(launcher, "sh", "-c", "echo $PPID")[0] == f"{os.getpid()}\n"
    launcher.close()


def test_when_it_dies_the_next_launch_starts_another() -> None:
    launcher = WarmLauncher(python=(sys.executable,))
    assert output_of(launcher, "true") == ("", 0)
    process = launcher._process  # noqa: SLF001 - to end exactly this one
    assert process is not None
    process.kill()
    process.wait()
    assert output_of(launcher, "true") == ("", 0)
    launcher.close()


def test_a_signal_from_the_terminal_is_the_commands_and_not_the_launchers() -> None:
    launcher = WarmLauncher(python=(sys.executable,))
    assert output_of(launcher, "true") == ("", 0)
    process = launcher._process  # noqa: SLF001
    assert process is not None
    process.send_signal(signal.SIGINT)
    assert output_of(launcher, "sh", "-c", "kill -INT $$") == ("", -signal.SIGINT)
    launcher.close()


def test_it_ends_with_its_caller() -> None:
    script = (
        "import os, sys; from democrai_osguard_launcher.warm_client import WarmLauncher\n"
        "w = WarmLauncher(python=(sys.executable,)); w._running(); print(w._process.pid)\n"
        "sys.stdout.flush(); os._exit(0)"
    )
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    for _ in range(200):
        if not os.path.exists(f"/proc/{result.stdout.strip()}"):
            return
        time.sleep(0.02)
    pytest.fail("the warm launcher outlived its caller")


def test_what_fails_at_the_last_step_is_said_too(warm: WarmLauncher, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("neither a program nor a script")
    (tmp_path / "text").chmod(0o755)
    with pytest.raises(LaunchFailed, match="Exec format error") as failure:
        warm.launch(request(tmp_path / "text"))
    assert failure.value.exit_code == 126
