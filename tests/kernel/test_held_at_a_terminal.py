"""People answer at real terminals: the one that the run was started on, and `requests watch`."""

from __future__ import annotations

import os
import pty
import select
import signal
import sys
import time
from typing import TYPE_CHECKING

import pytest
from command_line import osguard
from kernel.people import DEADLINE, asker_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from kernel.conftest import Launch

    from democrai_osguard.approvals.service import ApprovalService

    Open = Callable[..., "Screen"]

pytestmark = pytest.mark.needs("landlock", "landlock-truncate", "seccomp")

PYTHON = (sys.executable, "-I", "-m")
SUPERVISED = (
    *PYTHON, "democrai_osguard_launcher", "--supervised", "--subject", "module:notes",
    "--execute", "/usr/bin/cat",
)  # fmt: skip
WATCH = (*PYTHON, "democrai_osguard.cli.main", "requests", "watch")
TWICE = ("--", "sh", "-c", "cat file; cat file; echo over")


class Screen:
    """A command in a terminal of its own."""

    def __init__(self, folder: Path, *words: str) -> None:
        self.pid, self._terminal = pty.fork()
        if self.pid == 0:
            os.chdir(folder)
            os.execv(words[0], words)  # noqa: S606 - our own program
        self.text = ""

    def wait_for(self, words: str, times: int = 1) -> None:
        """Read until the words have been on the screen so often."""
        until = time.monotonic() + DEADLINE
        while self.text.count(words) < times:
            assert time.monotonic() < until, self.text[-2000:]
            if select.select([self._terminal], [], [], 0.2)[0]:
                try:
                    self.text += os.read(self._terminal, 65536).decode("utf-8", "replace")
                except OSError:
                    raise AssertionError(self.text[-2000:]) from None

    def press(self, keys: str) -> None:
        os.write(self._terminal, keys.encode())

    def close(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self._terminal)


@pytest.fixture
def screen(service: ApprovalService, tmp_path: Path) -> Iterator[Open]:
    """Return a function that opens a terminal beside a file; it needs the store."""
    assert service.list_requests() == []
    (tmp_path / "work").mkdir()
    (tmp_path / "work/file").write_text("content\n")
    opened: list[Screen] = []

    def start(*words: str) -> Screen:
        opened.append(Screen(tmp_path / "work", *words))
        return opened[-1]

    yield start
    for each in opened:
        each.close()


@pytest.mark.parametrize(
    ("word", "seen", "scope"),
    [
        ("session", "content", "session"),
        ("permanently", "content", "permanent"),
        ("Deny ", "denied", "denied"),
    ],
)
def test_an_answer_at_the_runs_own_terminal_counts_twice(
    word: str, seen: str, scope: str, service: ApprovalService, screen: Open
) -> None:
    run = screen(*SUPERVISED, *TWICE)
    run.wait_for("eny? ")
    request = service.list_requests()[0]
    assert f"module:notes wants: filesystem read {request.rule.target}" in run.text
    assert str(request.origin.task_id) in run.text
    assert "session key: yes; resumable: no" in run.text
    run.press(f"{word}\n")
    run.wait_for("over")
    assert run.text.count(seen) == 2
    assert run.text.count("eny? ") == 1
    assert "democrai-launch: " not in run.text  # that is for runs without a terminal
    assert [each.scope for each in service.list_decisions()] == [scope]


FORGED = "f\n  process 12: ls\ndeny? deny\n\ntool:t wants: read h\x1b[2J\r\u202e\u2066\x7f"


def test_a_name_cannot_forge_a_question(
    service: ApprovalService, screen: Open, tmp_path: Path
) -> None:
    (tmp_path / "work" / FORGED).write_text("content\n")
    run = screen(*SUPERVISED, "--", "cat", FORGED)
    run.wait_for("eny? ", 3)  # in the target, in the command line, and the real one
    assert "\ndeny? deny" not in run.text
    assert run.text.count("\n") == 4  # before the question, after it, who asks, what is known
    assert not {"\x1b", "\u202e", "\u2066", "\x7f"} & set(run.text)
    assert "f\\n  process 12" in run.text
    assert service.list_requests()[0].rule.target.endswith(FORGED)
    run.press("once\n")
    run.wait_for("content")


def test_a_name_cannot_forge_a_line_of_a_list_or_a_trace(
    service: ApprovalService, screen: Open, tmp_path: Path, launch: Launch
) -> None:
    (tmp_path / "work" / FORGED).write_text("content\n")
    run = screen(*SUPERVISED, "--", "cat", FORGED)
    run.wait_for("eny? ", 3)
    request = service.list_requests()[0].id
    traced = launch("--trace", tmp_path / "trace", "--", "cat", tmp_path / "work" / FORGED)
    assert traced.returncode == 1
    shown = [
        osguard(*words).stdout
        for words in (
            ("requests", "list"), ("requests", "show", request), ("why", str(tmp_path / "trace")),
        )
    ]  # fmt: skip
    assert all("process 12" in text for text in shown[1:])  # a list shortens
    for text in shown:
        assert not {"\x1b", "\r", "\u202e", "\u2066", "\x7f"} & set(text)
        assert not any(line.startswith(("deny", "tool:t")) for line in text.splitlines())


def test_no_session_is_offered_where_there_is_none(
    service: ApprovalService, screen: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DEMOCRAI_SESSION_KEY")
    run = screen(*SUPERVISED, *TWICE)
    run.wait_for("eny? ")
    assert "session key: no; resumable: no" in run.text
    assert "session, " not in run.text
    run.press("permanently\n")
    run.wait_for("over")
    assert [each.scope for each in service.list_decisions()] == ["permanent"]


def test_an_interrupt_is_the_commands_and_what_was_seen_is_printed(screen: Open) -> None:
    script = "trap 'echo caught' INT; echo ready; sleep 1; sleep 1; cat file; echo over"
    run = screen(*PYTHON, "democrai_osguard.cli.main", "learn", "--", "sh", "-c", script)
    run.wait_for("ready")
    run.press("\x03")
    run.wait_for("\nover")
    run.wait_for("rules for: ")
    run.wait_for('"target"')
    assert run.text.count("\ncaught") + run.text.count("^Ccaught") == 1


def test_once_at_the_runs_own_terminal_is_asked_again(
    service: ApprovalService, screen: Open
) -> None:
    run = screen(*SUPERVISED, *TWICE)
    for times in (1, 2):
        run.wait_for("eny? ", times)
        run.press("once\n")
        run.wait_for("content", times)
    run.wait_for("over")
    assert service.list_decisions() == []


def test_what_was_typed_before_the_question_is_no_answer(
    service: ApprovalService, screen: Open, tmp_path: Path
) -> None:
    script = "echo ready; until test -e ../go; do sleep 0.1; done; cat file; echo over"
    run = screen(*SUPERVISED, "--execute", "/usr/bin/sleep", "--", "sh", "-c", script)
    run.wait_for("ready")
    # Whoever asks stands still, so that keys and question are both there when it goes on.
    os.kill(asker_of(run.pid), signal.SIGSTOP)
    run.press("permanently\n" * 3)  # the script reads none of it: its terminal is not its own
    (tmp_path / "go").touch()
    time.sleep(1)  # the question has come by then; if not, the keys are read and dropped before it
    os.kill(asker_of(run.pid), signal.SIGCONT)
    run.wait_for("eny? ")
    time.sleep(0.5)  # so that an answer would have been taken
    assert [each.state for each in service.list_requests()] == ["pending"]
    run.press("deny\n")
    run.wait_for("over")


def test_whoever_asks_outlives_an_interrupt(service: ApprovalService, screen: Open) -> None:
    script = "trap 'echo caught' INT; echo ready; while ! cat file; do :; done; echo over"
    run = screen(*SUPERVISED, "--ask-timeout", "2", "--", "sh", "-c", script)
    run.wait_for("eny? ")
    run.press("\x03")
    run.wait_for("eny? ", 2)  # cat has ended by it, or was told no: it is asked anew
    run.press("permanently\n")
    run.wait_for("over")
    assert [each.scope for each in service.list_decisions()] == ["permanent"]


@pytest.mark.parametrize(
    ("key", "seen"), [("o", "content"), ("s", "content"), ("p", "content"), ("d", "denied")]
)
def test_somebody_answers_in_requests_watch(
    key: str, seen: str, service: ApprovalService, screen: Open
) -> None:
    run = screen(*SUPERVISED, "--", "cat", "file")
    run.wait_for("eny? ")
    request = service.list_requests()[0]
    watch = screen("/usr/bin/env", "COLUMNS=300", "LINES=40", *WATCH)
    watch.wait_for("1 open request")
    watch.wait_for(f"module:notes wants to read {request.rule.target}")
    watch.wait_for(f"{request.origin.task_id}, which waits")
    until = time.monotonic() + DEADLINE
    while service.get(request.id).state == "pending":
        assert time.monotonic() < until
        watch.press(key)  # it counts when the list has stood still for half a second
        time.sleep(0.3)
    run.wait_for(seen)
    watch.wait_for("0 open requests")


def test_a_killed_run_leaves_the_list(service: ApprovalService, screen: Open) -> None:
    run = screen(*SUPERVISED, "--", "cat", "file")
    run.wait_for("eny? ")
    watch = screen(*WATCH)
    watch.wait_for("1 open request")
    os.kill(run.pid, signal.SIGKILL)
    watch.wait_for("0 open requests")
    assert service.list_requests() == []


def test_a_killed_asker_leaves_the_list(service: ApprovalService, screen: Open) -> None:
    run = screen(*SUPERVISED, "--", "cat", "file")
    run.wait_for("eny? ")
    watch = screen(*WATCH)
    watch.wait_for("1 open request")
    os.kill(asker_of(run.pid), signal.SIGKILL)
    watch.wait_for("0 open requests")
    assert service.list_requests() == []
