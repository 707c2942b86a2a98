"""How long a question stands, how many there are at once, and who can be asked."""

from __future__ import annotations

import json
import os
import pty
import signal
import socket
import sys
import threading
import time
from typing import TYPE_CHECKING

import pytest
from kernel.people import (
    CAT,
    DEADLINE,
    LAUNCHER,
    OPERATOR,
    asked,
    asker_of,
    python,
    until,
)

from democrai_osguard.approvals.records import State
from democrai_osguard.approvals.request_table import HELD_SECONDS
from democrai_osguard.enforcement.held import PER_SECOND
from democrai_osguard_launcher.holding import MAX_WAITING

if TYPE_CHECKING:
    from pathlib import Path

    from kernel.conftest import Launch, Start

    from democrai_osguard.approvals.service import ApprovalService

pytestmark = pytest.mark.needs("landlock", "landlock-truncate", "seccomp")


def test_a_timeout_is_a_no(start: Start, service: ApprovalService) -> None:
    process = start("cat", "file", options=("--ask-timeout", "1"))
    asked(service)
    output, errors = process.communicate(timeout=DEADLINE)
    assert output == ""
    assert "Permission denied" in errors
    assert service.list_requests() == []


def test_a_killed_child_takes_its_question_with_it(start: Start, service: ApprovalService) -> None:
    process = start("sh", "-c", "cat file & echo $!; wait; echo over", options=CAT)
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
    assert errors.count("\n") == errors.count("democrai-launch: waits ") == 1
    assert sorted(output.split()) == ["done", "heard", "ready"]


def test_when_nobody_can_be_asked_any_more_it_is_no(start: Start, service: ApprovalService) -> None:
    process = start("sh", "-c", "cat file; echo $?", options=CAT)
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


def test_a_subject_is_needed(launch: Launch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DEMOCRAI_NETWORK_SUBJECT", raising=False)
    result = launch("--supervised", "--", "true")
    assert result.returncode == 64
    assert "for whom" in result.stderr


@pytest.mark.parametrize(("word", "seen"), [("once", "content"), ("deny", "Permission denied")])
def test_the_person_at_the_terminal_answers(
    word: str, seen: str, service: ApprovalService, work: Path
) -> None:
    assert service.list_requests() == []
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(work)
        words = [*LAUNCHER, "--supervised", "--subject", "module:notes", "--", "cat", "file"]
        os.execv(words[0], words)  # noqa: S606 - our own program
    try:
        _read_until(terminal, b"eny?")
        os.write(terminal, f"{word}\n".encode())
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
