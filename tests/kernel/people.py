"""What tests of held acts share: who answers, and how long a test waits for that."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import threading
import time
from typing import TYPE_CHECKING

from democrai_osguard.approvals.records import Operator, PendingRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from democrai_osguard.approvals.service import ApprovalService

OPERATOR = Operator("tester", super_role=True)
DEADLINE = 600.0
LAUNCHER = (sys.executable, "-I", "-m", "democrai_osguard_launcher")
CAT = ("--execute", "/usr/bin/cat")


def until(look: Callable[[], object]) -> None:
    """Wait until it is so."""
    end = time.monotonic() + DEADLINE
    while not look():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


def asked(service: ApprovalService) -> PendingRequest:
    """Wait for a question."""
    until(service.list_requests)
    return service.list_requests()[0]


def asker_of(launcher: int) -> int:
    """Return the process that asks for a run."""
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/status", encoding="ascii", errors="replace") as status:
                    parent = f"PPid:\t{launcher}\n" in status.read()
                with open(f"/proc/{entry}/cmdline", "rb") as line:
                    words = line.read()
            except OSError:
                continue
            if parent and b"enforcement.asker" in words:
                return int(entry)
    raise AssertionError("nobody asks")


@contextlib.contextmanager
def answering(decide: Callable[[str], str]) -> Iterator[tuple[int, list[str]]]:
    """Answer every question of a run with `--ask-fd`; yield that descriptor, and what was asked.

    `decide` takes the operation and the last part of the target, and returns yes, once or no.
    """
    ours, theirs = socket.socketpair()
    questions: list[str] = []

    def answer() -> None:
        for line in ours.makefile():
            question = json.loads(line)
            if "gone" in question:
                continue
            questions.append(f"{question['operation']} {os.path.basename(question['target'])}")
            reply = {"id": question["id"], "answer": decide(questions[-1])}
            ours.sendall(json.dumps(reply).encode() + b"\n")

    thread = threading.Thread(target=answer)
    thread.start()
    with ours, theirs:
        try:
            yield theirs.fileno(), questions
        finally:
            theirs.shutdown(socket.SHUT_RDWR)
            thread.join()


def python(act: str) -> tuple[str, ...]:
    """Return a command that does something with `at`, its folder, and says what came of it."""
    script = (
        "import os, pathlib, threading\nat = pathlib.Path.cwd()\n"
        f"try:\n    print('ready', flush=True)\n    {act}\n    print('done')\n"
        "except OSError as error:\n    print(type(error).__name__)\n"
    )
    return (sys.executable, "-I", "-c", script)


@contextlib.contextmanager
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
