"""The warm launcher: commands are children of the caller, and as confined as cold ones."""

from __future__ import annotations

import errno
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from democrai_osguard_launcher.warm_client import LaunchFailed, WarmLauncher

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.needs("landlock", "seccomp")


@pytest.fixture(scope="module", params=[(), ("--without-steps",)], ids=["steps", "fork"])
def warm(request: pytest.FixtureRequest) -> Iterator[WarmLauncher]:
    launcher = WarmLauncher(python=(sys.executable,), options=request.param)
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


def bonds(text: str) -> tuple[int, int, int]:
    """Return process, group and session, as a line of /proc has them."""
    words = text.rpartition(")")[2].split()
    return int(text.split(maxsplit=1)[0]), int(words[2]), int(words[3])


# A line of its own: a shell's `read` needs no other program.
SHOW = ("sh", "-c", "read line < /proc/$$/stat; echo $line")
SUPERVISED: dict[str, tuple[tuple[str, str], ...]] = {
    "nobody in between": (),
    "a supervisor in between": (("create", "/var/tmp"),),
}


@pytest.mark.parametrize("rules", SUPERVISED.values(), ids=SUPERVISED)
@pytest.mark.parametrize("options", [{}, {"process_group": 0}, {"start_new_session": True}])
@pytest.mark.needs("landlock-scopes")
def test_group_and_session_are_those_that_subprocess_gives(
    warm: WarmLauncher, rules: tuple[tuple[str, str], ...], options: dict[str, Any]
) -> None:
    control = subprocess.run(SHOW, stdout=subprocess.PIPE, text=True, check=True, **options)
    group = {(): None, ("process_group",): 0, ("start_new_session",): -1}[tuple(options)]
    reader, writer = os.pipe()
    asked = request(*SHOW, access=rules, group=group)
    child = warm.launch(asked, (0, writer, 2))
    os.close(writer)
    with os.fdopen(reader) as pipe:
        shown = bonds(pipe.read())
    assert os.waitpid(child, 0)[1] == 0
    assert (shown[0] == child) == (not rules)  # otherwise the child is the supervisor

    def told(process: int, group: int, session: int) -> list[str]:
        return [
            "ours" if each in (os.getpgrp(), os.getsid(0)) else "its" if each == process else "?"
            for each in (group, session)
        ]

    assert told(child, *shown[1:]) == told(*bonds(control.stdout))


@pytest.mark.needs("landlock-scopes")
def test_a_supervisor_takes_orphans_in_and_keeps_none_that_is_dead(warm: WarmLauncher) -> None:
    """A dead one would take up the number of a process for as long as the command runs."""
    sleep = (("execute", os.path.realpath("/bin/sleep")),)
    script = "(sleep 0.1 & sleep 30 & sleep 0.05); echo; sleep 31"
    reader, writer = os.pipe()
    asked = request("sh", "-c", script, access=(("create", "/var/tmp"), *sleep))
    child = warm.launch(asked, (0, writer, 2))
    os.close(writer)
    with os.fdopen(reader) as pipe:
        pipe.readline()
    time.sleep(1)
    left = Path(f"/proc/{child}/task/{child}/children").read_text(encoding="ascii").split()
    states = [Path(f"/proc/{each}/stat").read_text().rpartition(")")[2][1] for each in left]
    for each in left:
        os.kill(int(each), signal.SIGKILL)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    assert states == ["S", "S"]  # the command, and the one that sleeps on


def test_a_group_that_is_not_there_is_refused_as_the_kernel_does(warm: WarmLauncher) -> None:
    with pytest.raises(LaunchFailed, match="process group") as failure:
        warm.launch(request("true", group=os.getppid() + (1 << 21)))
    assert (failure.value.exit_code, failure.value.errno) == (126, errno.EPERM)


@pytest.mark.parametrize("words", [["x" * (1 << 18)], ["x" * 100_000] * 60])
def test_too_many_words_are_the_kernel_s_own_error(warm: WarmLauncher, words: list[str]) -> None:
    with pytest.raises(LaunchFailed) as failure:
        warm.launch(request("true", *words))
    assert (failure.value.exit_code, failure.value.errno) == (126, errno.E2BIG)
    assert output_of(warm, "true", *["x" * 100_000] * 15) == ("", 0)


FAILURES: dict[str, tuple[dict[str, object], int]] = {
    "not found": ({"command": ["no-such-command"]}, 127),
    "not executable": ({"command": ["/etc/passwd"]}, 126),
    "unknown operation": (
        {"access": [{"resource_type": "filesystem", "operation": "write", "target": "/"}]},
        64,
    ),
    "unknown field": ({"shell": True}, 64),
    "no folder": ({"folder": "/no/such/folder"}, 125),
    "empty command": ({"command": []}, 64),
    "unknown level": ({"require": "most"}, 64),
    "a word that has no end": ({"command": ["true", "a\0b"]}, 125),
    "a folder that has no end": ({"folder": "/tmp\0"}, 125),
    "a variable of two names": ({"environment": {"PATH": "/bin:/usr/bin", "A=B": "c"}}, 125),
    "a group that is a word": ({"group": "new"}, 64),
    "a program that is no path": ({"program": "true"}, 64),
    "a name that is no path": ({"program": "/bin/true", "called": "true"}, 64),
    "a program that is missing": ({"program": "/no/such/program"}, 127),
    "unknown limit": ({"limits": {"nothing": 1}}, 64),
}


@pytest.mark.parametrize("name", FAILURES)
def test_what_cannot_be_started_is_said_with_its_code(warm: WarmLauncher, name: str) -> None:
    fields, code = FAILURES[name]
    with pytest.raises(LaunchFailed) as failure:
        warm.launch({**request("true"), **fields})
    assert failure.value.exit_code == code
    assert output_of(warm, "true") == ("", 0)


def test_the_program_that_the_caller_has_found_is_started(warm: WarmLauncher) -> None:
    asked = {**request("false"), "program": "/bin/true"}
    assert os.waitstatus_to_exitcode(os.waitpid(warm.launch(asked), 0)[1]) == 0
    assert output_of(warm, "false") == ("", 1)  # the control


def test_network_rules_are_held_by_the_broker(warm: WarmLauncher) -> None:
    """The broker then lives under the first of the two seccomp programs."""
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("", 0)) as other:
        ports = [each.getsockname()[1] for each in (one, other)]
        script = (
            "import socket, sys\nfor port in map(int, sys.argv[1:]):\n"
            " print(socket.socket().connect_ex(('127.0.0.1', port)))\n"
            " print(socket.socket(2, 2).connect_ex(('127.0.0.1', port)))"
        )
        reader, writer = os.pipe()
        command = [sys.executable, "-I", "-c", script, *map(str, ports)]
        target = f"127.0.0.1:{ports[0]}"
        rules = [{"resource_type": "network", "operation": "connect", "target": target}]
        pid = warm.launch({**request(*command), "access": rules}, (0, writer, 2))
        os.close(writer)
        with os.fdopen(reader) as pipe:
            assert pipe.read().split() == ["0", "0", "13", "13"]
        assert os.waitpid(pid, 0)[1] == 0


def test_the_same_request_sees_what_has_changed_since(warm: WarmLauncher, tmp_path: Path) -> None:
    """What a request means is remembered; what its paths lead to is looked at each time."""
    place, other = tmp_path / "place", tmp_path / "other"

    def read() -> str:
        return output_of(warm, "cat", place / "file", access=(("read", place),))[0]

    assert read() == ""
    place.mkdir()
    (place / "file").write_text("first")
    assert read() == read() == "first"
    place.rename(other)
    place.mkdir()
    (place / "file").write_text("second")
    assert read() == "second"
    (place / "file").unlink()
    place.rmdir()
    place.symlink_to(other)
    assert read() == "first"
    place.unlink()
    assert read() == ""


def test_a_command_that_was_replaced_is_the_new_one(warm: WarmLauncher, tmp_path: Path) -> None:
    program = tmp_path / "program"
    for text in ("#!/bin/sh\necho one\n", "#!/usr/bin/env sh\necho two\n"):
        program.write_text(text)
        program.chmod(0o755)
        assert output_of(warm, program, access=(("read", program),))[0] == text[-4:]


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


def test_when_it_dies_during_a_launch_nothing_is_run_and_the_next_one_works() -> None:
    launcher = WarmLauncher(python=(sys.executable,))
    assert output_of(launcher, "true") == ("", 0)
    process = launcher._process  # noqa: SLF001 - to end exactly this one
    assert process is not None
    process.send_signal(signal.SIGSTOP)  # so that the request is in its hands and unanswered
    killer = threading.Timer(0.5, process.kill)
    killer.start()
    with pytest.raises(LaunchFailed, match="the warm launcher") as failed:
        launcher.launch(request("true"))
    killer.join()
    assert failed.value.exit_code == 125
    assert output_of(launcher, "true") == ("", 0)
    launcher.close()


def test_a_fork_of_the_caller_has_commands_of_its_own() -> None:
    launcher = WarmLauncher(python=(sys.executable,))
    assert output_of(launcher, "true") == ("", 0)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            text = output_of(launcher, "sh", "-c", "echo $PPID")[0]
            code = 0 if int(text) == os.getpid() else 2
            launcher.close()
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    assert output_of(launcher, "sh", "-c", "echo $PPID") == (f"{os.getpid()}\n", 0)
    launcher.close()


def memory_of(launcher: WarmLauncher) -> int:
    process = launcher._process  # noqa: SLF001
    assert process is not None
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0])


def test_its_memory_does_not_grow_with_what_it_was_asked(warm: WarmLauncher) -> None:
    for number in range(80):
        assert output_of(warm, "true", str(number)) == ("", 0)
    before = memory_of(warm)
    for number in range(80, 240):
        assert output_of(warm, "true", str(number)) == ("", 0)
    assert memory_of(warm) - before < 4096  # kB, where each was once worth a hundred


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
