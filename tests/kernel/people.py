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
