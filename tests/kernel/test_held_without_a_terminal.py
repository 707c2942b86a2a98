"""A supervised run without a terminal says on its standard error what it waits for."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from typing import TYPE_CHECKING

import pytest
from command_line import osguard
from kernel.people import CAT, DEADLINE, LAUNCHER, OPERATOR, answering, asked, until

if TYPE_CHECKING:
    from pathlib import Path

    from kernel.conftest import Launch, Start

    from democrai_osguard.approvals.service import ApprovalService

pytestmark = pytest.mark.needs("landlock", "landlock-truncate", "seccomp")

WAITS = (
    "democrai-launch: waits up to {} s for an answer (democrai-osguard requests approve"
    " --scope once {id}, or deny {id}): module:notes wants: filesystem read {target}"
)
UNANSWERED = (
    "democrai-launch: nobody answered in time, refused ({id}): "
    "module:notes wants: filesystem read {target}"
)
HIDDEN = "cat: file: Permission denied"
# Where a shell can send standard error so that nothing can be written there.
UNWRITABLE = {"closed": "2>&-", "full": "2>/dev/full", "a pipe that nobody reads": "2>&{pipe}"}
PIPE_SIZE = 4096


def ids(service: ApprovalService) -> list[str]:
    return [each.id for each in service.list_requests(pending=False)]


def test_the_line_says_what_waits_and_how_to_answer(
    start: Start, service: ApprovalService, work: Path
) -> None:
    process = start("cat", "file")
    assert process.stderr is not None
    line = process.stderr.readline().rstrip("\n")
    request = asked(service)
    assert line == WAITS.format(120, id=request.id, target=work / "file")
    found = re.search(r"\((democrai-osguard requests approve .*), or deny", line)
    assert found is not None
    assert osguard(*found[1].split()[1:]).returncode == 0
    assert process.communicate(timeout=DEADLINE) == ("content\n", "")


def test_a_silence_is_said_too(start: Start, service: ApprovalService, work: Path) -> None:
    process = start("cat", "file", options=("--ask-timeout", "1"))
    output, errors = process.communicate(timeout=DEADLINE)
    (number,) = ids(service)
    what = {"id": number, "target": work / "file"}
    assert output == ""
    assert sorted(errors.splitlines()) == [
        HIDDEN, UNANSWERED.format(**what), WAITS.format(1, **what)
    ]  # fmt: skip


def test_a_no_needs_no_second_line(start: Start, service: ApprovalService, work: Path) -> None:
    process = start("cat", "file")
    request = asked(service)
    service.deny(request.id, OPERATOR)
    _, errors = process.communicate(timeout=DEADLINE)
    assert errors.splitlines() == [WAITS.format(120, id=request.id, target=work / "file"), HIDDEN]


def test_each_question_has_its_line(start: Start, service: ApprovalService, work: Path) -> None:
    (work / "other").write_text("other\n")
    process = start("sh", "-c", "cat file & cat file & cat other; wait", options=CAT)
    until(lambda: len(service.list_requests()) == 2)
    for each in service.list_requests():
        service.approve_for_session(each.id, OPERATOR)
    output, errors = process.communicate(timeout=DEADLINE)
    assert sorted(output.split()) == ["content", "content", "other"]
    targets = [line.rpartition(" ")[2] for line in errors.splitlines()]
    assert sorted(targets) == [str(work / "file"), str(work / "other")]


def test_a_question_that_ends_with_its_child_was_not_left_unanswered(
    start: Start, service: ApprovalService
) -> None:
    process = start("sh", "-c", "cat file & echo $!; wait; echo over", options=CAT)
    assert process.stdout is not None
    child = int(process.stdout.readline())
    asked(service)
    os.kill(child, signal.SIGKILL)
    output, errors = process.communicate(timeout=DEADLINE)
    assert output == "over\n"
    assert "nobody answered" not in errors


FORGED = "f\ndemocrai-launch: nobody answered (democrai-osguard requests deny 1)\x1b[2J\r\u202e\x7f"


@pytest.mark.parametrize("depth", [0, 10])
def test_a_name_cannot_forge_a_line(
    depth: int, start: Start, service: ApprovalService, work: Path
) -> None:
    folder = work.joinpath(*("\x1b" * 200 for _ in range(depth)))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / FORGED).write_text("content\n")
    target = str((folder / FORGED).relative_to(work))
    process = start("cat", target, options=("--ask-timeout", "1"))
    request = asked(service)
    _, errors = process.communicate(timeout=DEADLINE)
    ours = [line for line in errors.split("\n") if line.startswith("democrai-launch: ")]
    assert len(ours) == 2
    for line in ours:
        assert line.isprintable()
        assert len(line.encode()) < PIPE_SIZE  # it is written as a whole, or not at all
        assert line.index(request.id) < line.index("wants: ")  # before what the command chose


@pytest.mark.parametrize("where", UNWRITABLE)
def test_where_nothing_can_be_said_nothing_fails(
    where: str, service: ApprovalService, work: Path
) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    script = f'"$@" {UNWRITABLE[where].format(pipe=writer)}'
    words = (*LAUNCHER, "--supervised", "--subject", "module:notes", "--", "cat", "file")
    with subprocess.Popen(
        ["bash", "-c", script, "bash", *words], cwd=work, text=True, stdout=subprocess.PIPE,
        pass_fds=[writer], start_new_session=True,
    ) as process:  # fmt: skip
        service.approve_once(asked(service).id, OPERATOR)
        output, _ = process.communicate(timeout=DEADLINE)
    os.close(writer)
    assert (process.returncode, output) == (0, "content\n")
    assert [entry.act for entry in service.list_history()] == ["once"]


def test_a_full_pipe_holds_no_answer_up(service: ApprovalService, work: Path) -> None:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    while True:
        try:
            os.write(writer, b"x" * PIPE_SIZE)
        except BlockingIOError:
            break
    os.set_blocking(writer, True)
    words = (*LAUNCHER, "--supervised", "--subject", "module:notes", "--", "cat", "file")
    with subprocess.Popen(
        words, cwd=work, text=True, stdout=subprocess.PIPE, stderr=writer, start_new_session=True
    ) as process:
        service.approve_once(asked(service).id, OPERATOR)
        assert process.communicate(timeout=60)[0] == "content\n"
    os.close(writer)
    os.close(reader)


def test_whoever_asks_in_its_own_way_says_it_itself(launch: Launch, work: Path) -> None:
    with answering(lambda _: "no") as (desk, questions):
        options = ("--supervised", "--subject", "module:notes", "--ask-fd", str(desk))
        result = launch(*options, "--", "cat", "file", cwd=work, keep=(desk,))
    assert questions == ["read file"]
    assert result.stderr.splitlines() == [HIDDEN]
