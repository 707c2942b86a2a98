"""Supervised runs: an act that no rule allows waits for a person, and then succeeds or fails."""

from __future__ import annotations

import functools
import json
import os
import pty
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from kernel.people import DEADLINE, LAUNCHER, OPERATOR, asked, asker_of, until

from democrai_osguard.approvals.records import State
from democrai_osguard.approvals.request_table import HELD_SECONDS
from democrai_osguard.enforcement.held import PER_SECOND
from democrai_osguard_launcher.holding import MAX_WAITING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from kernel.conftest import Launch, Start

    from democrai_osguard.approvals.service import ApprovalService

pytestmark = pytest.mark.needs("landlock", "landlock-truncate", "seccomp")


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    (folder / "empty").mkdir(parents=True)
    (folder / "file").write_text("content\n")
    return folder


@pytest.fixture
def start(supervised: Start, work: Path) -> Start:
    """Return a function that starts a supervised command in its folder."""
    return functools.partial(supervised, cwd=work)


def python(act: str) -> tuple[str, ...]:
    """Return a command that does something with `at`, its folder, and says what came of it."""
    script = (
        "import os, pathlib, threading\nat = pathlib.Path.cwd()\n"
        f"try:\n    print('ready', flush=True)\n    {act}\n    print('done')\n"
        "except OSError as error:\n    print(type(error).__name__)\n"
    )
    return (sys.executable, "-I", "-c", script)


@contextmanager
def somebody(service: ApprovalService, answer: Callable[[str], object]) -> Iterator[list[str]]:
    """Answer every question, in a thread; yield what was asked so far."""
    questions: list[str] = []
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            for request in service.list_requests():
                questions.append(
                    f"{request.rule.operation} {os.path.basename(request.rule.target)}"
                )
                answer(request.id)
            time.sleep(0.02)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield questions
    finally:
        stop.set()
        thread.join()


# Each act, what it asks for, and how one sees that it happened.
ACTS: dict[str, tuple[str, set[str], Callable[[Path], bool]]] = {
    "read": ("assert (at / 'file').read_text()", {"read file"}, lambda _: True),
    "list": ("assert os.listdir(at)", {"read work"}, lambda _: True),
    "append": (
        "open(at / 'file', 'a').write('more')", {"modify file"},
        lambda at: "more" in (at / "file").read_text(),
    ),
    "overwrite": (
        "(at / 'file').write_text('new')", {"modify file"},
        lambda at: (at / "file").read_text() == "new",
    ),
    "read and write": ("open(at / 'file', 'r+').write('X')", {"read file", "modify file"},
                       lambda at: (at / "file").read_text().startswith("X")),
    "create": (
        "(at / 'new').write_text('x')", {"create new"},
        lambda at: (at / "new").exists() and (at / "new").read_text() == "x",
    ),
    "make a folder": ("(at / 'new').mkdir()", {"create new"}, lambda at: (at / "new").is_dir()),
    "make a link": (
        "(at / 'new').symlink_to('x')", {"create new"}, lambda at: (at / "new").is_symlink()
    ),
    "make a fifo": ("os.mkfifo(at / 'new')", {"create new"}, lambda at: (at / "new").exists()),
    "remove": ("(at / 'file').unlink()", {"delete file"}, lambda at: not (at / "file").exists()),
    "remove a folder": (
        "(at / 'empty').rmdir()", {"delete empty"}, lambda at: not (at / "empty").exists()
    ),
    "rename": (
        "(at / 'file').rename(at / 'new')", {"delete file", "create new"},
        lambda at: (at / "new").exists(),
    ),
    "rename, with slashes": (
        "os.rename('empty/', 'new/')", {"delete empty", "create new"},
        lambda at: (at / "new").is_dir(),
    ),
    "truncate": (
        "os.truncate(at / 'file', 1)", {"modify file"}, lambda at: (at / "file").stat().st_size == 1
    ),
    "chmod": (
        "(at / 'file').chmod(0o600)", {"modify file"},
        lambda at: (at / "file").stat().st_mode & 0o777 == 0o600,
    ),
    "touch": (
        "os.utime(at / 'file', (1, 1))", {"modify file"},
        lambda at: (at / "file").stat().st_mtime == 1,
    ),
}  # fmt: skip


@pytest.mark.parametrize("act", ACTS)
def test_an_approved_act_succeeds_and_nothing_is_stored(
    act: str, start: Start, service: ApprovalService, work: Path
) -> None:
    script, wanted, happened = ACTS[act]
    with somebody(service, lambda each: service.approve_once(each, OPERATOR)) as questions:
        output, errors = start(*python(script)).communicate(timeout=DEADLINE)
    assert (output, errors) == ("ready\ndone\n", "")
    assert set(questions) == wanted
    assert happened(work)
    assert service.list_decisions() == []
    assert {entry.act for entry in service.list_history()} == {"once"}


@pytest.mark.parametrize("act", ACTS)
def test_a_denied_act_fails_and_is_never_asked_again(
    act: str, start: Start, service: ApprovalService, work: Path
) -> None:
    script, _, happened = ACTS[act]
    with somebody(service, lambda each: service.deny(each, OPERATOR)):
        output, _ = start(*python(script)).communicate(timeout=DEADLINE)
    assert output == "ready\nPermissionError\n"
    assert not happened(work) or act in {"read", "list"}
    with somebody(service, lambda each: service.approve_once(each, OPERATOR)) as questions:
        output, _ = start(*python(script)).communicate(timeout=DEADLINE)
    assert output == "ready\nPermissionError\n"
    assert not questions or act in {
        "rename",
        "rename, with slashes",
        "read and write",
    }  # the other half was not denied


def test_without_supervision_nobody_is_asked(
    launch: Launch, service: ApprovalService, work: Path
) -> None:
    result = launch("--subject", "module:notes", "--", "cat", work / "file")
    assert (result.stdout, service.list_requests()) == ("", [])


def test_the_question_shows_who_wants_what_and_how(
    start: Start, service: ApprovalService, work: Path
) -> None:
    process = start("cat", "file")
    request = asked(service)
    assert (str(request.subject), request.held) == ("module:notes", True)
    assert [str(each) for each in request.chain] == ["module:notes"]
    assert (request.label, request.rule.target) == ("Filesystem read", str(work / "file"))
    assert str(request.origin.task_id).endswith(": cat file")
    service.approve_once(request.id, OPERATOR)
    assert process.communicate(timeout=DEADLINE)[0] == "content\n"


@pytest.mark.parametrize(
    ("variable", "chain"),
    [
        ('["agent:a", "module:notes"]', ["agent:a", "module:notes"]),
        ('["agent:a", "tool:other"]', ["module:notes"]),
    ],
)
def test_the_question_shows_through_whom_the_run_was_started(
    variable: str,
    chain: list[str],
    start: Start,
    service: ApprovalService,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DEMOCRAI_SUBJECT_CHAIN", variable)
    start("cat", "file")
    assert [str(each) for each in asked(service).chain] == chain


@pytest.mark.parametrize("scope", ["session", "permanent"])
def test_an_approval_counts_from_then_on(
    scope: str, start: Start, service: ApprovalService
) -> None:
    process = start("sh", "-c", "exec < file; cat; exec < file; cat", options=_cat())
    service.decide(asked(service).id, scope, OPERATOR)
    assert process.communicate(timeout=DEADLINE)[0] == "content\n" * 2
    assert start("cat", "file").communicate(timeout=DEADLINE)[0] == "content\n"
    assert [entry.scope for entry in service.list_decisions()] == [scope]


def _cat() -> tuple[str, ...]:
    return ("--execute", "/usr/bin/cat")


def test_once_is_for_one_call(start: Start, service: ApprovalService) -> None:
    process = start("sh", "-c", "cat file; cat file", options=_cat())
    first = asked(service)
    service.approve_once(first.id, OPERATOR)
    until(lambda: [each for each in service.list_requests() if each.id != first.id])
    service.deny(service.list_requests()[0].id, OPERATOR)
    assert process.communicate(timeout=DEADLINE)[0] == "content\n"


def test_a_timeout_is_a_no(start: Start, service: ApprovalService) -> None:
    process = start("cat", "file", options=("--ask-timeout", "1"))
    asked(service)
    output, errors = process.communicate(timeout=DEADLINE)
    assert output == ""
    assert "Permission denied" in errors
    assert service.list_requests() == []


def test_a_killed_child_takes_its_question_with_it(start: Start, service: ApprovalService) -> None:
    process = start("sh", "-c", "cat file & echo $!; wait; echo over", options=_cat())
    assert process.stdout is not None
    child = int(process.stdout.readline())
    request = asked(service)
    os.kill(child, signal.SIGKILL)
    until(lambda: not service.list_requests())
    assert service.get(request.id).state == "ended"
    assert process.communicate(timeout=DEADLINE)[0] == "over\n"


def test_a_killed_run_takes_its_question_with_it(start: Start, service: ApprovalService) -> None:
    process = start("cat", "file")
    asked(service)
    process.kill()
    until(lambda: not service.list_requests())


def test_the_same_question_is_asked_once(start: Start, service: ApprovalService) -> None:
    act = (
        "threads = [threading.Thread(target=lambda: print((at / 'file').read_text(), end=''))"
        " for _ in range(5)]; [each.start() for each in threads]; [each.join() for each in threads]"
    )
    process = start(*python(act))
    request = asked(service)
    time.sleep(0.5)  # the others have long asked by then, and if not the count is one as well
    assert service.get(request.id).count == 1
    service.approve_for_session(request.id, OPERATOR)
    output, _ = process.communicate(timeout=DEADLINE)
    assert output.count("content") == 5
    assert len(service.list_requests(pending=False)) == 1


CROWD = """
import sys, threading
threading.stack_size(65536)
def read(name):
    try:
        open(name).close()
    except PermissionError:
        print("refused", flush=True)
for number in range(int(sys.argv[1])):
    threading.Thread(target=read, args=(f"file{number}",)).start()
"""


def test_a_crowd_is_asked_about_slowly_and_not_without_end(
    start: Start, service: ApprovalService, work: Path
) -> None:
    for number in range(MAX_WAITING + 3):
        (work / f"file{number}").write_text("x")
    process = start(sys.executable, "-I", "-c", CROWD, str(MAX_WAITING + 3))
    assert process.stdout is not None
    # One more than can wait is refused without a question.
    assert [process.stdout.readline() for _ in range(3)] == ["refused\n"] * 3
    until(lambda: len(service.list_requests()) > 2 * PER_SECOND)
    seen = sorted(request.first_seen for request in service.list_requests())
    pairs = zip(seen, seen[PER_SECOND:], strict=False)
    assert min(later - first for first, later in pairs) > 0.9
    process.kill()
    until(lambda: not service.list_requests())


def test_a_signal_while_it_waits_only_comes_later(start: Start, service: ApprovalService) -> None:
    act = (
        "import signal; signal.signal(signal.SIGALRM, lambda *_: print('heard', flush=True)); "
        "signal.setitimer(signal.ITIMER_REAL, 0.05); (at / 'file').read_text()"
    )
    process = start(*python(act))
    request = asked(service)
    time.sleep(0.2)  # the signal has been sent by then, and if not nothing is lost
    service.approve_once(request.id, OPERATOR)
    output, errors = process.communicate(timeout=DEADLINE)
    assert errors == ""
    assert sorted(output.split()) == ["done", "heard", "ready"]


SWAP = """
import os, sys, threading
os.symlink("file", "name")
def swap():
    sys.stdin.readline()
    os.rename("other", "name")
    print("swapped", flush=True)
thread = threading.Thread(target=swap); thread.start()
try:
    print(open("name").read(), end="")
except OSError as error:
    print(type(error).__name__)
thread.join()
"""


def test_what_is_swapped_while_it_waits_is_not_what_was_approved(
    service: ApprovalService, work: Path, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text("secret\n")
    (work / "other").symlink_to(tmp_path / "secret")
    options = ["--create", str(work), "--delete", str(work)]
    words = [*LAUNCHER, "--supervised", "--subject", "module:notes", *options, "--"]
    process = subprocess.Popen(
        [*words, sys.executable, "-I", "-c", SWAP], cwd=work, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    request = asked(service)
    assert request.rule.target == str(work / "file")
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("go\n")
    process.stdin.flush()
    assert process.stdout.readline() == "swapped\n"
    service.approve_once(request.id, OPERATOR)
    output, _ = process.communicate(timeout=DEADLINE)
    assert output == "PermissionError\n"


def test_when_nobody_can_be_asked_any_more_it_is_no(start: Start, service: ApprovalService) -> None:
    process = start("sh", "-c", "cat file; echo $?", options=_cat())
    request = asked(service)
    os.kill(asker_of(process.pid), signal.SIGKILL)
    output, _ = process.communicate(timeout=DEADLINE)
    assert output == "1\n"
    # And the question goes with whoever asked it, for those who watch as well.
    assert State.EXPIRED in (each.state for each in service.watch(timeout=6 * HELD_SECONDS))
    assert service.list_requests() == []
    assert not service.approve_once(request.id, OPERATOR).applied


def test_a_question_stands_as_long_as_somebody_waits(
    start: Start, service: ApprovalService
) -> None:
    process = start("cat", "file")
    request = asked(service)
    time.sleep(1.5 * HELD_SECONDS)
    assert [each.id for each in service.list_requests()] == [request.id]
    service.approve_once(request.id, OPERATOR)
    assert process.communicate(timeout=DEADLINE)[0] == "content\n"


def test_a_caller_can_ask_in_its_own_way(launch: Launch, work: Path) -> None:
    ours, theirs = socket.socketpair()
    questions: list[dict[str, object]] = []

    def answer() -> None:
        for line in ours.makefile():
            questions.append(json.loads(line))
            word = "yes" if str(questions[-1]["target"]).endswith("file") else "no"
            reply = {"id": questions[-1]["id"], "answer": word}
            ours.sendall(json.dumps(reply).encode() + b"\n")

    thread = threading.Thread(target=answer)
    thread.start()
    with ours, theirs:
        options = ("--supervised", "--ask-fd", str(theirs.fileno()))
        (work / "other").write_text("other")
        result = launch(
            *options, "--", "cat", work / "file", work / "other", keep=(theirs.fileno(),)
        )
        theirs.shutdown(socket.SHUT_RDWR)
        thread.join()
    assert result.stdout == "content\n"
    assert [os.path.basename(str(each["target"])) for each in questions] == ["file", "other"]


def test_learning_can_begin_with_nothing(service: ApprovalService, work: Path) -> None:
    command = [sys.executable, "-I", "-m", "democrai_osguard.cli.main", "learn", "--deny-first"]
    (work / "other").write_text("other")

    def decide(each: str) -> object:
        wanted = service.get(each).rule.target.endswith("file")
        return service.approve_once(each, OPERATOR) if wanted else service.deny(each, OPERATOR)

    with somebody(service, decide):
        done = subprocess.run(
            [*command, "--", "cat", "file", "other"], cwd=work, capture_output=True, text=True,
            timeout=DEADLINE, check=False,
        )  # fmt: skip
    assert done.stdout.startswith("content\n")
    rule = {"resource_type": "filesystem", "operation": "read", "target": str(work / "file")}
    assert json.loads(done.stdout.removeprefix("content\n")) == {"access": [rule]}


def test_what_was_learnt_by_asking_is_enough(
    service: ApprovalService, work: Path, tmp_path: Path, launch: Launch
) -> None:
    manifest = tmp_path / "learned.json"
    words = ["learn", "--deny-first", "--manifest-out", str(manifest), "--"]
    command = ("sh", "-c", "exec < file; read -r word; echo $word > new")
    with somebody(service, lambda each: service.approve_once(each, OPERATOR)):
        subprocess.run(
            [sys.executable, "-I", "-m", "democrai_osguard.cli.main", *words, *command],
            cwd=work, capture_output=True, text=True, timeout=DEADLINE, check=True,
        )  # fmt: skip
    (work / "new").unlink()
    assert launch("--manifest", manifest, "--", *command, cwd=work).returncode == 0
    assert (work / "new").read_text() == "content\n"


def test_a_move_that_was_approved_is_learnt_as_its_folder(
    service: ApprovalService, work: Path, tmp_path: Path, launch: Launch
) -> None:
    manifest = tmp_path / "learned.json"
    words = ["learn", "--deny-first", "--manifest-out", str(manifest), "--"]
    command = python("(at / 'file').rename(at / 'new')")
    with somebody(service, lambda each: service.approve_once(each, OPERATOR)):
        subprocess.run(
            [sys.executable, "-I", "-m", "democrai_osguard.cli.main", *words, *command],
            cwd=work, capture_output=True, text=True, timeout=DEADLINE, check=True,
        )  # fmt: skip
    (work / "new").rename(work / "file")
    assert launch("--manifest", manifest, "--", *command, cwd=work).stdout == "ready\ndone\n"


def test_a_subject_is_needed(launch: Launch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DEMOCRAI_NETWORK_SUBJECT", raising=False)
    result = launch("--supervised", "--", "true")
    assert result.returncode == 64
    assert "for whom" in result.stderr


@pytest.mark.parametrize(("key", "seen"), [("o", "content"), ("d", "Permission denied")])
def test_the_person_at_the_terminal_answers(
    key: str, seen: str, service: ApprovalService, work: Path
) -> None:
    assert service.list_requests() == []
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(work)
        words = [*LAUNCHER, "--supervised", "--subject", "module:notes", "--", "cat", "file"]
        os.execv(words[0], words)  # noqa: S606 - our own program
    try:
        _read_until(terminal, b"eny?")
        os.write(terminal, f"{key}\n".encode())
        _read_until(terminal, seen.encode())
    finally:
        os.close(terminal)
        os.waitpid(child, 0)


def _read_until(terminal: int, wanted: bytes) -> None:
    found = b""
    end = time.monotonic() + DEADLINE
    while wanted not in found:
        assert time.monotonic() < end, found
        try:
            found += os.read(terminal, 4096)
        except OSError:
            raise AssertionError(found) from None
